// An agent that knows nothing of paifs, in node: see agent_of_python.py. Not a test by itself.
//    agent_of_node.js CANARY PORT_COMMAND...
"use strict";
const cp = require("child_process");
const fs = require("fs");
const http = require("http");

const [canary, ...portCommand] = process.argv.slice(2);
const top = process.cwd();
const bash = "/bin/bash";
const say = (what, ...words) =>
	console.log(what + ":", ...words.map((w) => JSON.stringify(w).replaceAll(top, "TOP")));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function sh(line, options) {
	const r = cp.spawnSync(bash, ["-c", line], { timeout: 30000, stdio: ["ignore", "pipe", "pipe"], ...options });
	return [r.status, r.stdout.toString(), r.stderr.toString()];
}

// As an agent's shell tool: both streams as they come, the end when nobody holds them any more.
function spawn(line, options) {
	return new Promise((done) => {
		let out = "";
		const child = cp.spawn(bash, ["-c", line], { stdio: ["ignore", "pipe", "pipe"], ...options });
		child.stdout.on("data", (d) => (out += d));
		child.stderr.on("data", (d) => (out += d));
		child.on("close", (code, signal) => done([code, signal, out]));
	});
}

function firstLine(child, stream) {
	return new Promise((done) => {
		let seen = "";
		child[stream].on("data", (d) => {
			seen += d;
			if (seen.includes("\n")) {
				done(seen);
			}
		});
	});
}

const fetched = (port) => new Promise((done, failed) => http.get(`http://127.0.0.1:${port}/page.txt`, (r) => {
	let body = "";
	r.on("data", (d) => (body += d));
	r.on("end", () => done(body));
}).on("error", failed));

async function main() {
	fs.mkdirSync("src/deep", { recursive: true });
	fs.writeFileSync("src/a.txt", "one\n");
	say("read there", sh("cat src/a.txt; echo two >> src/a.txt"));
	say("read here", fs.readFileSync("src/a.txt", "utf8"));
	fs.writeFileSync("src/a.new", "three\n");
	fs.renameSync("src/a.new", "src/a.txt");
	say("renamed", sh("cat a.txt", { cwd: "src" }));
	say("moved there", sh("mv src/a.txt src/deep/b.txt && ls src src/deep"), fs.readdirSync("src/deep"));
	say("error", sh("cat nothing; exit 3"));
	say("size", fs.statSync("src/deep/b.txt").size);
	say("no host", sh(`cat ${canary} 2>/dev/null`)[1]);
	say("exec", cp.execSync("echo $((6*7)); pwd", { shell: bash }).toString());
	say("streams", await spawn("echo out; echo err >&2; exit 5"));
	say("background", await spawn("(sleep 0.5; echo later) & echo now"));

	// A watcher of the file that a command changes.
	let told = 0;
	fs.writeFileSync("watched", "0");
	fs.watchFile("watched", { interval: 50 }, () => told++);
	await sleep(200);
	sh("echo changed > watched");
	for (let i = 0; i < 100 && told === 0; i++) {
		await sleep(50);
	}
	fs.unwatchFile("watched");
	say("watched", told > 0);

	fs.writeFileSync("page.txt", "page\n");
	const port = 20000 + process.pid % 20000;
	const server = cp.spawn(bash, ["-c", `exec python3 -u -m http.server --bind 127.0.0.1 ${port}`],
		{ stdio: ["ignore", "pipe", "ignore"], detached: true });
	say("serving", (await firstLine(server, "stdout")).includes("Serving HTTP"));
	const forward = cp.spawn(portCommand[0], portCommand.slice(1).map((w) => w.replace("{}", String(port))),
		{ stdio: ["ignore", "pipe", "inherit"] });
	const where = /127\.0\.0\.1:(\d+)/.exec(await firstLine(forward, "stdout"))[1];
	say("fetched", await fetched(where));
	forward.kill();
	const ended = new Promise((done) => server.on("exit", (code, signal) => done([code, signal])));
	process.kill(-server.pid, "SIGTERM");
	const end = await ended;
	say("server's end", end);

	const killed = spawn("echo up; sleep 100", { timeout: 500, killSignal: "SIGKILL" });
	say("killed", (await killed).slice(1));
	fs.rmSync("src", { recursive: true });
	say("gone", sh("ls -A | grep -v '^\\.pai$'"));
}
main().catch((e) => { console.log("failed:", e); process.exitCode = 1; });
