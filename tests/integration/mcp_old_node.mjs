// For node before 22, preloaded: a checker imports globSync for what is not used here.
import { register } from 'node:module';

const fs = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = undefined;";
const hooks = `export const resolve = (name, context, next) =>
	name === 'fs' && !context.parentURL?.startsWith('data:') ?
		{ url: ${JSON.stringify('data:text/javascript,' + encodeURIComponent(fs))}, shortCircuit: true } :
		next(name, context);`;
register('data:text/javascript,' + encodeURIComponent(hooks));
