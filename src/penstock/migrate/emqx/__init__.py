"""A move from EMQX 4: `export` reads its JSON, `passwords` and `rules` two parts of that."""
