"""One connection to a gateway (`link`). `connecting` makes it again when it is lost: read that first."""
