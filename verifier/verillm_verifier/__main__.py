"""`python -m verillm_verifier` is `verillm-audit`."""

import sys

from verillm_verifier.cli import main

sys.exit(main())
