"""Every error Rostra raises on purpose.

RostraError                 one sentence: what happened, where, what to do
├── ConfigError             a setting that makes no sense, or an unknown key
├── DataError               a file that cannot be read, or is not what it says it is
├── RuleError               a move that the rules of a debate do not allow (a bug in the caller)
├── EngineError             an engine failed at one call; the debate is played again
│   └── EngineUnavailable   an engine is gone for good; nothing can go on
└── ArenaError              no debate could be finished
"""


class RostraError(Exception):
    """Base of all errors that a person should read as a message, not as a traceback."""


class ConfigError(RostraError):
    """A setting that makes no sense, or a key that nobody knows."""


class DataError(RostraError):
    """A file that cannot be read, is cut short, or is not what its name says."""


class RuleError(RostraError):
    """A move that the rules of the debate do not allow."""


class EngineError(RostraError):
    """An engine failed at one call. The arena plays the debate again."""


class EngineUnavailable(EngineError):
    """An engine is gone and will not come back. Stops everything, and names the engine."""


class ArenaError(RostraError):
    """Not one debate could be finished."""
