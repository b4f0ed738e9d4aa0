"""The one exception that means: the user's input could not be used."""


class HcpError(Exception):
    """A user's fault in one line: what was found, what was wanted, what to do. The command line exits with 2.

    A wrong but readable configuration is a finding, not an error; a fault of ours is an `assert`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
