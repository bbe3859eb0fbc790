/* The commands of `pai`, as its help lists them. */
#include <string.h>

#include "execshim/pai_cmd.h"

const struct pai_cmd pai_cmd_table[] = {
    {"ls", "[KEY...]", "list the sessions of a daemon",
	"example: pai ls\n         pai -n default ls --json thread-42\n", 0, SIZE_MAX, pai_cmd_ls},
    {"status", "[KEY]", "what serves here, what isolates it, and how a session stands",
	"KEY defaults to the session you stand in.\n"
	"example: cd ~/pai/thread-42 && pai status\n",
	PAI_TAKES_SESSION, 1, pai_cmd_status},
    {"probe", "", "ask the provider whether it serves you; makes nothing",
	"With --json {\"enabled\":true,\"error\":null}, or false and why: transport, backend, "
	"auth,\n"
	"not-served or unknown.\n"
	"example: pai probe\n",
	0, 0, pai_cmd_probe},
    {"key", "thread|rootThread|user|scope|global|custom ID=VALUE...",
	"derive a session's key from the ids that its scope keys it on",
	"The same ids give the same key everywhere, others another:\n"
	"  thread      threadId=... [scopeKey=...]      rootThread  rootThreadId=... "
	"[scopeKey=...]\n"
	"  user        userKey=... [scopeKey=...]       scope       scopeKey=...\n"
	"  global      none                             custom      any\n"
	"scopeKey is the tenant, where there are several. A threadId alone is its own key.\n"
	"example: pai-exec -s \"$(pai key user scopeKey=acme userKey=ann)\" make test\n",
	0, SIZE_MAX, pai_cmd_key},
    {"use", "[--exclusive] KEY -- PROGRAM [ARG...]",
	"run a local program against one environment of a session",
	"What the program asks by pai-exec, pai tool, pai and libpai of that session is done in "
	"one\n"
	"environment, or fails (reset). If that is lost meanwhile and the program has failed, it "
	"is\n"
	"run once more in the next one, unless somebody reset or killed the session.\n"
	"--exclusive: serial with other such uses, tool writes and edits, and resets of the "
	"session.\n"
	"The program finds in its environment PAI_SESSION and PAI_DAEMON, which outside a mount "
	"stand\n"
	"for -s and -n, PAI_ENVIRONMENT, PAI_TOKEN and PAI_RUN, which say the use, and "
	"PAI_ENVIRONMENT_RESET,\n"
	"1 when earlier files and processes of the session are gone.\n"
	"Exit status: the program's, 128+N when signal N ended it; 125 not run, 126 and 127 as in "
	"a "
	"shell.\n"
	"example: pai use --exclusive thread-42 -- sh -ec 'pai-exec make; pai-exec make install'\n",
	PAI_TAKES_SESSION | PAI_TAKES_USE, SIZE_MAX, pai_cmd_use},
    {"create", "KEY [-o NAME=VALUE,...] | --scope SCOPE ID=VALUE... [-o ...]",
	"make a session's sandbox now",
	"Options are those of the mount, for this session alone; they are kept until pai kill:\n"
	"  template=NAME  ttl=1h  network=none|allowlist|full  allow=HOST (repeatable)\n"
	"  metadata.NAME=VALUE  env.NAME=VALUE  cpu=2  memory=2G  pids=500  disk=10G\n"
	"  keepalive_ttl=5m  create_timeout=2m  session_key_metadata=NAME  create=./PROGRAM\n"
	"What they do: paifs --help. A live sandbox keeps what it was made with: another network "
	"or\n"
	"template is refused (policy-mismatch); kill or reset the session first.\n"
	"--scope: the key is what pai key derives; scope and ids are kept with the session.\n"
	"example: pai create thread-42 -o network=full,ttl=1h\n",
	PAI_TAKES_SESSION | PAI_TAKES_OPTIONS | PAI_TAKES_SCOPE, 1, pai_cmd_create},
    {"reset", "KEY | --scope SCOPE ID=VALUE...",
	"destroy a session's environment; the next use makes a fresh one",
	"Files and processes in it are gone. KEY is never guessed from the directory. One that "
	"was\n"
	"never used stays so.\n"
	"example: pai reset thread-42\n",
	PAI_TAKES_SESSION | PAI_TAKES_SCOPE, 1, pai_cmd_reset},
    {"kill", "KEY... | --sandbox ID | --scope SCOPE ID=VALUE...",
	"end sessions and delete their sandboxes",
	"A killed session comes back only by pai create, mkdir or pai-exec.\n"
	"--sandbox kills one sandbox by the provider's id. --scope: of scope rootThread, a "
	"threadId\n"
	"beside another rootThreadId is a delegated thread, whose end leaves the session alone.\n"
	"example: pai kill thread-42 thread-43\n",
	PAI_TAKES_SESSION | PAI_TAKES_SANDBOX | PAI_TAKES_SCOPE, SIZE_MAX, pai_cmd_kill},
    {"pause", "[KEY]", "snapshot and stop a session's sandbox, where the provider can",
	"KEY defaults to the session you stand in.\n"
	"example: pai pause thread-42\n",
	PAI_TAKES_SESSION, 1, pai_cmd_pause},
    {"barrier", "[KEY]", "wait until the mount shows what has been done in the sandbox",
	"Only for what background processes do there: pai-exec does it for its own command.\n"
	"KEY defaults to the session you stand in.\n"
	"example: pai barrier thread-42 && git -C ~/pai/thread-42 status\n",
	PAI_TAKES_SESSION, 1, pai_cmd_barrier},
    {"trust", "[KEY] [--off]", "let host git use the repositories of a session",
	"A repository's configuration can run programs on this machine: trust only what you would\n"
	"run. KEY defaults to the session you stand in.\n"
	"example: pai trust thread-42\n",
	PAI_TAKES_SESSION | PAI_TAKES_OFF, 1, pai_cmd_trust},
    {"log", "[KEY] [--all] [--limit N] [--before ID]", "what happened: commands, creates, kills",
	"KEY defaults to the session you stand in, else all.\n"
	"example: pai log thread-42 --limit 20\n",
	PAI_TAKES_SESSION | PAI_TAKES_PAGE, 1, pai_cmd_log},
    {"seed", "check|status [KEY]", "the files that a session's sandbox should hold (-o seed=)",
	"check copies what the sandbox lacks, as the first operation of a run does, and makes the\n"
	"sandbox where there is none; status says how the last check ended and asks nobody.\n"
	"KEY defaults to the session you stand in. Exit status 1: something is missing.\n"
	"example: pai seed check thread-42\n",
	PAI_TAKES_SESSION, 2, pai_cmd_seed},
    {"filename", "NAME", "make a safe file name out of any",
	"For seeds that keep files under their own names: no separators, no control or invisible\n"
	"characters, no leading '.', '-' or '~', at most 200 bytes, never empty.\n"
	"example: pai filename '../my report.pdf'\n",
	0, 1, pai_cmd_filename},
    {"port", "[KEY] PORT [--listen [ADDRESS:]PORT]",
	"forward a local port to one that is open in a sandbox",
	"Listens until it is ended (^C) and prints where: on 127.0.0.1, at the same port, or where "
	"that "
	"is\n"
	"taken at a free one. --listen chooses; port 0 means a free one. Who is on this machine "
	"can "
	"connect,\n"
	"with another ADDRESS also others. A sandbox without a network can be reached like any "
	"other.\n"
	"KEY defaults to the session you stand in; its sandbox is made or woken by the first "
	"connection.\n"
	"example: pai-exec --detach python3 -m http.server 8000 && pai port thread-42 8000\n",
	PAI_TAKES_SESSION | PAI_TAKES_LISTEN, 2, pai_cmd_port},
    {"tool", "NAME [--input JSON] [--stream] | --batch | [NAME] --schema",
	"call one of the seven tools: JSON in, JSON out",
	"NAME is bash, read, write, edit, grep, glob or listDirectory. The input is one JSON "
	"object, "
	"from\n"
	"--input or stdin; the answer is one line of JSON. --schema prints what a tool takes and "
	"gives.\n"
	"--stream prints an event a line while bash runs, and the answer as the last one. --batch "
	"takes\n"
	"the calls of one step from stdin, {\"tool\":NAME,\"input\":{...}} a line: bash, write and "
	"edit run\n"
	"alone and in order, the others together; a call that fails stops those after it.\n"
	"Exit status: 0 answered, 1 a tool error, 2 the input was not understood, 3 answered, and "
	"it "
	"is a\n"
	"failure that stops a step (a command's exit code, an edit that was not made, ...).\n"
	"The session is -s KEY, or the one you stand in.\n"
	"example: pai tool bash -s thread-42 --input '{\"reason\":\"List\",\"command\":\"ls\"}'\n",
	PAI_TAKES_SESSION | PAI_TAKES_CALL, 1, pai_cmd_tool},
    {"mcp", "[--root DIR] [--include TOOLS | --exclude TOOLS]",
	"serve the seven tools over MCP on stdin and stdout",
	"For a client that starts it, until its stdin ends. The session is -s KEY, the one of "
	"--root,\n"
	"or the one you stand in. --root DIR takes a directory of a mount: inside of a session "
	"tools\n"
	"begin there; above them all, the path or cwd of each call says which session it is for.\n"
	"--include and --exclude take names of tools: bash,read\n"
	"example: pai mcp -s thread-42 --exclude edit\n",
	PAI_TAKES_SESSION | PAI_TAKES_SERVE, 0, pai_cmd_mcp},
    {"run", "[-s KEY] [--dry-run] [--] AGENT [ARG...]",
	"start an agent that knows nothing of paifs in a session",
	"The agent itself runs on this machine, in a mount namespace of its own: the session is "
	"at\n"
	"/workspace there, and every shell that it starts is one of the sandbox. Of the "
	"environment\n"
	"they get what the agent adds, less secrets and paths of this machine; TMPDIR is a folder "
	"of\n"
	"both sides. Shells of git's credential helpers, of ssh and of gpg stay on this machine, "
	"and\n"
	"what `pai host` runs. --dry-run shows what would be masked, passed and refused.\n"
	"example: pai run -s thread-42 -- claude\n",
	PAI_TAKES_SESSION | PAI_TAKES_PROGRAM, SIZE_MAX, pai_cmd_run},
    {"shell-init", "", "links by which git, make, ... run in the sandbox that you stand in",
	"Prints what puts them on PATH. In a session's directory a link is the program of its name "
	"in\n"
	"the sandbox; elsewhere, and where an option or variable names a place outside (-C, "
	"--git-dir,\n"
	"GIT_DIR, --prefix, ...), the next one on PATH. ~/.config/paifs/links lists other names, "
	"one a\n"
	"line.\n"
	"example: eval \"$(pai shell-init)\"\n",
	0, 0, pai_cmd_shell_init},
    {"host", "[--] [CMD [ARG...]]", "run a command on this machine, inside of pai run",
	"CMD and all that it starts have this machine's shells. Without CMD: your shell.\n"
	"example: pai host -- make deploy\n",
	PAI_TAKES_PROGRAM, SIZE_MAX, pai_cmd_host},
    {"conformance", "PROVIDER|./libmine.so [OPTIONS]", "hold a provider to the contract",
	"", /* pai-conformance has its own */
	PAI_TAKES_RAW, SIZE_MAX, pai_cmd_conformance},
    {"doctor", "", "check this machine, and say what no mount can stop", "example: pai doctor\n", 0,
	0, pai_cmd_doctor},
    {"umount", "", "unmount and end a daemon; sandboxes stay",
	"Ends the daemon of the mount you stand in, or -n NAME; without both as for every "
	"command:\n"
	"'default', else the only one that has a mount.\n"
	"example: pai umount -n default\n",
	0, 0, pai_cmd_umount},
    {NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const struct pai_cmd *pai_cmd_find(const char *name)
{
	for (const struct pai_cmd *c = pai_cmd_table; c->name; c++) {
		if (strcmp(c->name, name) == 0) {
			return c;
		}
	}
	return NULL;
}
