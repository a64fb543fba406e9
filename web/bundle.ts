/** What is built beside the bundle: the licences of what is in it, a digest of its sources, and all of it compressed. */

import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const ROOT = import.meta.dirname;
/** What the bundle is made of, beside the packages that the lock names. */
const SOURCES = ['bundle.ts', 'docs.html', 'index.html', 'package-lock.json', 'package.json', 'src', 'tsconfig.json', 'vite.config.ts'];

/** Writes the licences of all packages of which something is in the bundle. */
export function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const packages = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== 'chunk') continue;
        for (const [id, { renderedLength }] of Object.entries(chunk.modules)) {
          const found = /^.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+/.exec(id.replace(/^\0/, ''));
          if (found !== null && renderedLength > 0) packages.add(found[0]);
        }
      }
      const texts = [...packages].map(licenceOf).sort();
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join('\n\n') });
      this.emitFile({ type: 'asset', fileName: 'sources.txt', source: `${digest()}\n` });
    },
  };
}

function licenceOf(folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Record<string, unknown>;
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  const text = file === undefined ? '' : `\n\n${readFileSync(join(folder, file), 'utf8').trim()}`;
  return `${String(about['name'])} ${String(about['version'])}: ${String(about['license'])}${text}`;
}

/** Returns the SHA-256 of the sources, names and contents, which tests compare. */
function digest(): string {
  const hash = createHash('sha256');
  for (const path of SOURCES.flatMap((name) => filesOf(join(ROOT, name))).sort()) {
    hash.update(`${relative(ROOT, path).split(sep).join('/')}\0`).update(readFileSync(path)).update('\0');
  }
  return hash.digest('hex');
}

function filesOf(path: string): string[] {
  if (!existsSync(path)) return [];
  return statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => filesOf(join(path, name))) : [path];
}

/** Leaves each built file as gzip alone: that is what the server sends. */
export function compressed(folder: string): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    closeBundle() {
      for (const name of readdirSync(folder)) {
        const path = join(folder, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        rmSync(path);
      }
    },
  };
}
