#!/usr/bin/env python3
# timeout 240
"""A mount over `docker`: files and commands agree, what is gone is told and what stays is not, whoever
ends what: the container, the engine, the daemon. What a sandbox leaves in its files gives the host
nothing, and each thing that may be wrong with an engine has its own words."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docker_cases  # noqa: E402

sys.exit(docker_cases.main("docker-life", False))
