"""An SGLang in use: what it is, which patches it has, and how they go in and out."""
