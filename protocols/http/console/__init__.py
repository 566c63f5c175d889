"""The web console: files that a browser gets at `/` of the management listener, and nothing else.

`files.py` serves them. `www/` has them as they are served: plain ES modules, without a build step. All that
the console shows and does goes through the management API and the data plane, with the session of its user.
So no right is decided here.

    www/index.html, app.js, style.css   the shell: sign in, navigation, which page is shown
    www/api.js, parts.js, plot.js       requests; tables, forms and dialogs; curves
    www/pages/                          a module for each page
    www/vendor/                         Preact with htm, and uPlot, as `make vendor` takes them from npm
"""
