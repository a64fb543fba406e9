/** Changes of folders, domains and rights: the requests of `hsparse mkdir`, `mv`, `rm` and `acl`, in their order. */

import { type Query, RequestError, sendJson } from './client';
import type { DomainRecord } from './hdf';
import type { Right, Rights } from './rights';

/** A folder or a domain. */
export interface Place {
  path: string;
  bucket?: string | undefined;
}

/** An entry of a folder's listing. */
export interface Member {
  name: string;
  class: string;
}

/** Is told the path of each thing that is done. */
type Report = (path: string) => void;

/** The most that is counted of a folder before somebody is asked whether to delete it. */
export const MOST_COUNTED = 10_000;
const PAGE = 1000;

/** The path of a name in a folder. What it may not have else, the server says. */
export function pathIn(folder: string, name: string): string {
  if (name === '') throw new Error('Give it a name.');
  if (name.includes('/')) throw new Error('A name has no /: the folder has a field of its own.');
  if (!folder.startsWith('/')) throw new Error('The path of a folder begins with /.');
  if (/\p{Surrogate}/u.test(folder + name)) throw new Error('The name has half of a character, which no path can have.');
  return `${folder.replace(/\/+$/, '')}/${name}`;
}

function queryOf({ path, bucket }: Place): Query {
  return { domain: path, bucket };
}

export function isMissing(error: unknown): boolean {
  return error instanceof RequestError && (error.status === 404 || error.status === 410);
}

/** What is at a path; undefined if nothing is. */
export async function findPlace(place: Place, signal?: AbortSignal): Promise<DomainRecord | undefined> {
  try {
    return await sendJson<DomainRecord>('/', queryOf(place), { signal });
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Raises an error if there is anything at a path, or nothing can be. */
export async function requireFree(place: Place, signal?: AbortSignal): Promise<void> {
  if ((await findPlace(place, signal)) !== undefined) throw new Error(`${place.path} exists already: choose another name, or delete it first.`);
}

export async function makeFolder(place: Place, owner?: string): Promise<void> {
  await sendJson('/', queryOf(place), { method: 'PUT', body: { folder: 1, owner } });
}

/** Deletes a domain with all its objects, or an empty folder. What is gone already is no error. */
export async function deletePlace(place: Place): Promise<void> {
  try {
    await sendJson('/', queryOf(place), { method: 'DELETE' });
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

/** Lists all that is in a folder, page by page. */
async function* membersOf({ path, bucket }: Place, signal?: AbortSignal): AsyncGenerator<Member> {
  for (let after: string | undefined; ; ) {
    const query = { domain: `${path}/`, bucket, Limit: PAGE, Marker: after };
    const { domains } = await sendJson<{ domains: Member[] }>('/domains', query, { signal });
    yield* domains;
    after = domains.at(-1)?.name;
    if (domains.length < PAGE) return;
  }
}

export interface Count {
  domains: number;
  folders: number;
}

/** Counts what is below a folder, at most `MOST_COUNTED` of both. */
export async function countBelow(folder: Place, signal?: AbortSignal): Promise<Count> {
  const count = { domains: 0, folders: 0 };
  const left = [folder];
  for (let one = left.pop(); one !== undefined; one = left.pop()) {
    for await (const member of membersOf(one, signal)) {
      if (member.class === 'folder') left.push({ ...folder, path: member.name });
      count[member.class === 'folder' ? 'folders' : 'domains'] += 1;
      if (count.domains + count.folders >= MOST_COUNTED) return count;
    }
  }
  return count;
}

/** Deletes a folder after all that is in it. */
export async function deleteTree(folder: Place, report: Report, signal: AbortSignal): Promise<void> {
  for await (const member of membersOf(folder, signal)) {
    const place = { ...folder, path: member.name };
    if (member.class === 'folder') await deleteTree(place, report, signal);
    else await deletePlace(place).then(() => report(place.path));
    signal.throwIfAborted();
  }
  await deletePlace(folder);
  report(folder.path);
}

/** The entries of an access control list, by user. */
export type Entries = Record<string, Rights>;

export async function readAcls(place: Place, signal?: AbortSignal): Promise<Entries> {
  const { acls } = await sendJson<{ acls: ({ userName: string } & Record<Right, boolean | undefined>)[] }>('/acls', queryOf(place), { signal });
  // What is not said is not given; an entry also has the domain in which it was set.
  const granted = acls.map((acl) => [acl.userName, Object.fromEntries(RIGHTS.map((right) => [right, acl[right] === true]))]);
  return Object.fromEntries(granted) as Entries;
}

export const RIGHTS: readonly Right[] = ['create', 'read', 'update', 'delete', 'readACL', 'updateACL'];

export async function setAcl(place: Place, user: string, rights: Rights): Promise<void> {
  await sendJson(aclPath(user), queryOf(place), { method: 'PUT', body: rights });
}

export async function removeAcl(place: Place, user: string): Promise<void> {
  await sendJson(aclPath(user), queryOf(place), { method: 'DELETE' });
}

function aclPath(user: string): string {
  // A browser takes these for steps in the path, so that the request would be another one.
  if (['', '.', '..'].includes(user)) throw new Error(user === '' ? 'Name a user, g:GROUP or default.' : `${user} cannot be the name of a user.`);
  return `/acls/${encodeURIComponent(user)}`;
}

/** Moves domains and folders, as `hsparse mv` does: a domain has both names before it loses the first one. */
export class Mover {
  /** Folders that were made for what is moved, so that it can go on in them after a failure. */
  private readonly made = new Set<string>();

  constructor(
    private readonly bucket: string | undefined,
    /** An admin keeps the owners of what is moved; others become the owners. */
    private readonly isAdmin: boolean,
    private report: Report,
    private signal: AbortSignal,
  ) {}

  /** Goes on with what failed or was stopped. */
  again(report: Report, signal: AbortSignal): this {
    this.report = report;
    this.signal = signal;
    return this;
  }

  async move(from: string, to: string): Promise<void> {
    if (`${to}/`.startsWith(`${from}/`)) throw new Error(`${from} cannot get into itself: ${to} is not another place.`);
    const record = await findPlace(this.at(from), this.signal);
    if (record === undefined) throw new Error(`${from} was deleted or moved meanwhile.`);
    await (record.root === undefined ? this.moveFolder(from, to, record) : this.moveDomain(from, to, record));
  }

  private async moveFolder(from: string, to: string, record: DomainRecord): Promise<void> {
    if (!this.made.has(to)) {
      await requireFree(this.at(to), this.signal);
      await makeFolder(this.at(to), this.owner(record));
      this.made.add(to);
    }
    try {
      await this.copyAcls(from, to);
      for await (const member of membersOf(this.at(from), this.signal)) {
        this.signal.throwIfAborted();
        await this.move(member.name, `${to}${member.name.slice(from.length)}`);
      }
      await deletePlace(this.at(from));
    } catch (error) {
      throw withMore(error, `What was not moved is in ${from}.`);
    }
    this.report(from);
  }

  private async moveDomain(from: string, to: string, record: DomainRecord): Promise<void> {
    const there = await findPlace(this.at(to), this.signal);
    if (there !== undefined && there.root !== record.root) throw new Error(`${to} exists already: choose another name, or delete it first.`);
    // With the same objects it is there since this move was stopped.
    if (there === undefined) {
      await sendJson('/', queryOf(this.at(to)), { method: 'PUT', body: { linked_domain: from, owner: this.owner(record) } });
    }
    try {
      await this.copyAcls(from, to);
      if ((await findPlace(this.at(to)))?.root !== record.root) throw new Error(`${to} was replaced meanwhile.`);
      await sendJson('/', { ...queryOf(this.at(from)), keep_root: 1, linked_domain: to }, { method: 'DELETE' });
    } catch (error) {
      throw withMore(error, `${from} and ${to} may be two names of the same objects now: rename it again in the same way, and delete neither, which would delete the objects.`);
    }
    this.report(from);
  }

  private async copyAcls(from: string, to: string): Promise<void> {
    for (const [user, rights] of Object.entries(await readAcls(this.at(from)))) await setAcl(this.at(to), user, rights);
  }

  private owner({ owner }: DomainRecord): string | undefined {
    return this.isAdmin ? owner : undefined;
  }

  private at(path: string): Place {
    return { path, bucket: this.bucket };
  }
}

function withMore(error: unknown, text: string): unknown {
  if (error instanceof Error && error.name !== 'AbortError' && !error.message.includes(text)) error.message += ` ${text}`;
  return error;
}
