#!/bin/bash
# The recorded calls of the seven tools over ssh; in CI by one engine.
# timeout 240
# timeout-long 1200
[ "${PAI_LONG:-0}" = 1 ] || export PAI_ENGINES=rg
PAI_OVER=ssh exec "$(dirname "$0")/tools-recorded.py"
