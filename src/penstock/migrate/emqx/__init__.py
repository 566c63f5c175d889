"""A move from EMQX 4. `export` reads the JSON of `emqx_ctl data export`, `passwords` and `rules` its parts."""
