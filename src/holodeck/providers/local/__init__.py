"""A language model in this process, without a service or a key. Needs the extra `local` and pulled weights."""
