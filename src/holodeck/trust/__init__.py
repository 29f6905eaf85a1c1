"""Trust in files: what a file would do is done only after a person has said yes to exactly that.

`store` has the trust records of this user, `check` compares them with the actions of a file. Nothing here asks: the
command line does.
"""
