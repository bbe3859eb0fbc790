#!/usr/bin/env python3
# timeout 240
"""The same mount with the files in the containers (-o workspace=helper): an engine elsewhere."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docker_cases  # noqa: E402

sys.exit(docker_cases.main("docker-helper", True))
