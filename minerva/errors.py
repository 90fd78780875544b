"""The one kind of error that is the user's to mend."""


class UserError(Exception):
    """A mistake the user can mend. Its message is one line: the key, the value, and what is allowed."""


class NotFiniteError(UserError):
    """An observation or a reward is infinite or not a number."""
