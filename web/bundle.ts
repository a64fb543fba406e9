/** What is built beside the bundle: the licences of what is in it, a digest of its sources, and all of it compressed. */

import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const ROOT = import.meta.dirname;
/** What the bundle is made of, beside the packages that the lock names. */
const SOURCES = ['bundle.ts', 'docs.html', 'index.html', 'package-lock.json', 'package.json', 'sign-in.html', 'src', 'tsconfig.json', 'vite.config.ts'];

/** Packages that name their licence and have no text of it. The build fails for any other. */
const WITHOUT_TEXT = ['@react-three/fiber'];
const MIT = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`;

/** Writes the licences of all packages of which something is in the bundle, and of what these have in them. */
export function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const packages = new Map<string, string[]>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== 'chunk') continue;
        for (const [id, { renderedLength }] of Object.entries(chunk.modules)) {
          const file = id.replace(/^\0/, '').replace(/\?.*$/, '');
          const folder = /^.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+/.exec(file)?.[0];
          if (folder === undefined || renderedLength === 0) continue;
          packages.set(folder, [...(packages.get(folder) ?? []), file]);
        }
      }
      const texts = [...packages].map(([folder, files]) => licenceOf(folder, files)).sort();
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join('\n\n') });
      this.emitFile({ type: 'asset', fileName: 'sources.txt', source: `${digest()}\n` });
    },
  };
}

/**
 * Returns the texts of a package: its licence, its notice, and the comments on licences that a packer has taken out of
 * its files.
 */
function licenceOf(folder: string, files: string[]): string {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Record<string, unknown>;
  const name = String(about['name']);
  const names = readdirSync(folder).sort();
  const licences = names.filter((one) => /^licen[cs]e/i.test(one)).map((one) => join(folder, one));
  const notices = names.filter((one) => /^notice/i.test(one)).map((one) => join(folder, one));
  const others = files.map((file) => `${file}.LICENSE.txt`).filter((file) => existsSync(file)).sort();
  const texts = [...licences, ...notices, ...others].map((file) => readFileSync(file, 'utf8').trim());
  if (licences.length === 0) {
    if (!WITHOUT_TEXT.includes(name) || about['license'] !== 'MIT') throw new Error(`${name} has no text of its licence.`);
    texts.unshift(`Copyright (c) ${authorOf(about)} and contributors\n\n${MIT}`);
  }
  return [`${name} ${String(about['version'])}: ${String(about['license'])}`, ...texts].join('\n\n');
}

function authorOf(about: Record<string, unknown>): string {
  const author = about['author'] as { name?: string } | string | undefined;
  return typeof author === 'string' ? author : (author?.name ?? String(about['name']));
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
