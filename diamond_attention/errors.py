"""The one exception that means: the user can fix this."""


class UserError(Exception):
    """One clear sentence that names the setting and what to do; the command line exits with status 2."""
