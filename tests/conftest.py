"""What holds for all tests."""

import signal

# A shell starts what runs in the background deaf to Ctrl-C, and whatever that starts is deaf too.
signal.signal(signal.SIGINT, signal.default_int_handler)
