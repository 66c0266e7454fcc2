"""`python -m rdchat` is the same as `rdchat`."""

import sys

from rdchat.cli import main

sys.exit(main())
