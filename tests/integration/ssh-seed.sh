#!/bin/bash
# The seed's section, a case a sentence, over ssh.
# timeout 240
PAI_OVER=ssh exec "$(dirname "$0")/seed-table.py"
