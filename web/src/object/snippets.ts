/** The same data for programs: lines of Python and of a shell. */

import { nameOf, parentOf } from '../address';
import { isAnnData } from '../anndata/anndata';
import { frameAt } from '../anndata/frame';
import { urlOf } from '../api/client';
import type { Domain, HdfObject } from '../api/hdf';
import { isSparse, placesQuery } from '../api/hdf';
import { formatSelect, type Span } from '../api/values';

/** A literal of Python: JSON's strings are such. */
function pythonText(text: string): string {
  return JSON.stringify(text);
}

/** An argument of a POSIX shell. */
function shellText(text: string): string {
  return `'${text.replace(/'/g, `'\\''`)}'`;
}

function encodedPath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

export function filePath(domain: Domain): string {
  return `/files${encodedPath(domain.path)}`;
}

export function fileUrl(domain: Domain, layout?: string): string {
  return urlOf(filePath(domain), { bucket: domain.bucket, layout });
}

/** Who runs the lines: a user with a password, somebody with a key or a token, or nobody. */
export type Runner = { user: string } | 'key' | undefined;

export function pythonSnippet(domain: Domain, path: string, object: HdfObject, spans: Span[], runner: Runner): string {
  const url = urlOf(encodedPath(domain.path));
  const who = runner === undefined ? '' : runner === 'key' ? ', token=...' : `, user=${pythonText(runner.user)}, password=...`;
  const bucket = domain.bucket === undefined ? '' : `, bucket=${pythonText(domain.bucket)}`;
  const open = `with hsparse.open(${pythonText(url)}${bucket}${who}) as file:`;
  const at = formatSelect(spans).slice(1, -1);
  const item = `file[${pythonText(path)}]`;
  const dataset = `data = ${item}${spans.length > 0 ? `[${at}]` : '[()]'}`;
  const group = isAnnData(domain, path) ? `data = file.to_anndata(${path === '/' ? '' : pythonText(path)})` : `item = ${item}`;
  return `import hsparse\n\n${open}\n    ${frameLine(domain, path) ?? (object.shape === undefined ? group : dataset)}\n`;
}

/** Returns the line that makes a data frame of pandas of what is at a path, if it is a frame of an AnnData. */
function frameLine(domain: Domain, path: string): string | undefined {
  const [above, name] = [parentOf(path), nameOf(path)];
  const [top, isRaw] = nameOf(above) === 'raw' && name === 'var' ? [parentOf(above), true] : [above, path === '/raw.var'];
  if (frameAt(domain, path) === undefined || !isAnnData(domain, top) || !(isRaw || name === 'obs' || name === 'var')) return undefined;
  const where = top === '/' ? '' : pythonText(top);
  return isRaw ? `data = file.to_anndata(${where}).raw.var` : `data = file.query(${where === '' ? '' : `path=${where}`}).${name}`;
}

/** The command that puts a file into a folder of this server; without a folder, into that of the user. */
export function importCommand(folder: string, user: string, runner: Runner): string {
  const home = folder === '/' ? `/home/${user}` : folder;
  const who = runner === undefined ? '' : runner === 'key' ? ' --token-file KEY_FILE' : ` --user ${shellWord(runner.user)}`;
  return `hsparse import FILE.h5 ${shellWord(`${home}/FILE.h5`)} --endpoint ${shellWord(urlOf('').replace(/\/$/, ''))}${who}`;
}

/** An argument of a POSIX shell, in quotes only if it needs them. */
function shellWord(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) ? text : shellText(text);
}

export function curlSnippet(domain: Domain, object: HdfObject, spans: Span[], runner: Runner): string {
  const collection = object.id.startsWith('g-') ? 'groups' : object.id.startsWith('d-') ? 'datasets' : 'datatypes';
  const values = collection === 'datasets' ? '/value' : '';
  const select = collection === 'datasets' && spans.length > 0 ? formatSelect(spans) : undefined;
  const url = urlOf(`/${collection}/${object.id}${values}`, { ...placesQuery(domain, object), select, sparse: isSparse(object) ? 1 : undefined });
  // The shell's variable is not to be written out by the page, so it is in double quotes.
  const who = runner === undefined ? '' : runner === 'key' ? '-H "Authorization: Bearer $HS_API_KEY" ' : `-u ${shellText(runner.user)} `;
  return `curl -g ${who}${shellText(url)}\n`;
}
