"""What a provider raises instead of an answer."""


class Unsupported(Exception):
    """The provider does not do this case; the reason is the exception's text."""


class Refused(Exception):
    """A typed refusal of an invalid input."""

    def __init__(self, kind, argument, found, accepted):
        super().__init__("{}: {}; found {}, accepted: {}".format(argument, kind, found, accepted))
        self.kind, self.argument, self.found, self.accepted = kind, argument, str(found), str(accepted)
