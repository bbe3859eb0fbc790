"""mcp_sdk.py legacy|auto COMMAND...: the Python SDK's client against a server, as mcp_sdk.mjs does it. Not a
test by itself; runs in a Python that has the SDK."""
import json
import os
import sys
import time

import anyio
from mcp import Client, StdioServerParameters


async def main(mode, command, *args):
    said = {"progress": []}
    server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        async def call(tool, **fields):
            more = {"progress_callback": fields.pop("progress")} if "progress" in fields else {}
            return await client.call_tool(tool, {"reason": "As python", **fields}, **more)

        async def value(tool, **fields):
            return (await call(tool, **fields)).structured_content

        async def on_progress(progress, total, message):
            said["progress"].append(message)

        said["version"], said["instructions"] = client.protocol_version, client.instructions
        said["server"] = client.server_info.name
        said["tools"] = [t.name for t in (await client.list_tools()).tools]
        said["calls"] = {
            "bash": await value("bash", command="echo hello"),
            "write": await value("write", path="/workspace/sdk.txt", content="one\n"),
            "edit": await value("edit", path="/workspace/sdk.txt", oldString="one", newString="two"),
            "read": await value("read", path="/workspace/sdk.txt"),
            "grep": await value("grep", pattern="two", path="/workspace/sdk.txt"),
            "glob": await value("glob", pattern="sdk.txt"),
            "listDirectory": await value("listDirectory", path="/workspace")}
        said["picture"] = [c.type for c in (await call("read", path="/workspace/picture.png")).content]
        said["wrong"] = (await call("bash", command=7)).is_error
        await call("bash", command="echo a; sleep 1.2", progress=on_progress)
        begun = time.monotonic()
        with anyio.move_on_after(0.7) as scope:
            await call("bash", command="sleep 61.27105")
        said["cancelled"] = scope.cancelled_caught and time.monotonic() - begun < 5
        said["after"] = await value("bash", command='sleep 0.5; pgrep -f "sleep [6]1.27105" || echo none')
    print(json.dumps(said))


anyio.run(main, *sys.argv[1:])
