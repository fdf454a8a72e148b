"""What stands above every table: where and when it was measured."""

from verillm_verifier.machine import machine_line as machine_line
