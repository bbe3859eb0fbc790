// mcp_sdk.mjs v1|v2 legacy|auto COMMAND...: the TypeScript SDK's client against a server: lists,
// calls, progress, a cancel. Prints what came of it as JSON. Not a test by itself.
const [which, mode, command, ...args] = process.argv.slice(2);
const from = async (name) => import(name);
const { Client } = await from(which === 'v1' ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = await from(
	which === 'v1' ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');

const client = new Client({ name: 'checker', version: '1' }, which === 'v1' ? {} : { versionNegotiation: { mode } });
const call = (name, fields, options) => {
	const params = { name, arguments: { reason: `As ${which}`, ...fields } };
	return which === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const value = async (...all) => (await call(...all)).structuredContent;

await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' }));
const said = { server: client.getServerVersion()?.name, instructions: client.getInstructions() };
said.tools = (await client.listTools()).tools.map((t) => t.name);
said.calls = {
	bash: await value('bash', { command: 'echo hello' }),
	write: await value('write', { path: '/workspace/sdk.txt', content: 'one\n' }),
	edit: await value('edit', { path: '/workspace/sdk.txt', oldString: 'one', newString: 'two' }),
	read: await value('read', { path: '/workspace/sdk.txt' }),
	grep: await value('grep', { pattern: 'two', path: '/workspace/sdk.txt' }),
	glob: await value('glob', { pattern: 'sdk.txt' }),
	listDirectory: await value('listDirectory', { path: '/workspace' }),
};
said.picture = (await call('read', { path: '/workspace/picture.png' })).content.map((c) => c.type);
said.wrong = (await call('bash', { command: 7 })).isError;
said.progress = [];
await call('bash', { command: 'echo a; sleep 1.2' }, { onprogress: (p) => said.progress.push(p.message) });
const abort = new AbortController();
const begun = Date.now();
setTimeout(() => abort.abort('enough'), 700);
try {
	await call('bash', { command: 'sleep 61.27105' }, { signal: abort.signal });
	said.cancelled = false;
} catch {
	said.cancelled = Date.now() - begun < 5000;
}
said.after = await value('bash', { command: 'sleep 0.5; pgrep -f "sleep [6]1.27105" || echo none' });
said.version = client.getNegotiatedProtocolVersion?.() ?? null;
await client.close();
console.log(JSON.stringify(said));
