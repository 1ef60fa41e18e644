"""What an SGLang in use is, and which patches it has: read, never changed."""
