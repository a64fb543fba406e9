/**
 * A file of this computer that becomes a domain: sent piece by piece into an upload, which the server then imports.
 *
 * An upload is a domain beside the one to be made: it has the bytes, and says how many of them are there. Every request may
 * be repeated, so that after a cut at any byte, or in a page loaded anew, the file is sent from there on.
 */

import { pause, RequestError, send, sendJson, untilAnswered } from './client';
import { deletePlace, findPlace, pathIn, requireFree } from './deeds';
import { collectionOf, type DomainRecord, type HdfObject } from './hdf';
import { findJob, followJob, type JobRequest, startJob } from './jobs';

const SUFFIX = '.upload';
const MIB = 1 << 20;
/** Bytes of a piece: of the first one, and of the largest and the smallest. */
const FIRST_PIECE = MIB;
const LARGEST_PIECE = 8 * MIB;
const SMALLEST_PIECE = MIB / 16;
/** A piece that takes fewer milliseconds is followed by one of twice the size. */
const QUICK = 1000;
/** Milliseconds after which a server that is away is asked again: the first time, and at most. */
const FIRST_PAUSE = 500;
const LAST_PAUSE = 30_000;
/** Answers to a piece that is too large for a proxy, and to one that came too slowly: a smaller one may pass. */
const TOO_LARGE = 413;
const TOO_SLOW = [400, 408];

/** What an upload says of its file; `received` bytes from the start are there. */
export interface UploadState {
  name: string;
  size: number;
  modified: number;
  received: number;
}

export interface UploadProgress {
  text: string;
  done?: number | undefined;
  total?: number | undefined;
}

/** What is at the path of an upload, and is not that of the file. */
export class OtherUpload extends Error {}

interface Opened {
  root: string;
  dataset: string;
  received: number;
  /** The most bytes of a piece. */
  most: number;
}

type Answer = DomainRecord & { limits?: { max_request_size: number } };
type Group = HdfObject & { id: string };

export class Upload {
  /** The domain that is made of the file, and that which has its bytes meanwhile. */
  readonly target: string;
  readonly path: string;
  private readonly request: JobRequest;
  private piece = FIRST_PIECE;
  private largest = LARGEST_PIECE;
  /** Whether an import of it was begun, so that the target may be there in part. */
  private isBegun = false;

  constructor(
    readonly folder: string,
    readonly file: File,
  ) {
    this.target = pathIn(folder, file.name);
    this.path = this.target + SUFFIX;
    this.request = { kind: 'import', domain: this.target, source: `upload://${this.path}` };
  }

  /** Raises an error, before anything is sent, if the domain exists already, or another file of the name is being uploaded. */
  async check(signal: AbortSignal): Promise<void> {
    if (this.file.size === 0) throw new Error(`${this.file.name} is empty: there is nothing to import.`);
    if (this.isBegun || (await findJob(this.request, signal)) !== undefined) return;
    await untilAnswered(async () => {
      await requireFree({ path: this.target }, signal);
      const record = await findPlace({ path: this.path }, signal);
      if (record !== undefined) this.compare(await this.read(this.rootOf(record), signal));
    }, signal);
  }

  /** Sends what is missing of the file, has it imported, and returns what the server says of it. */
  async run(report: (progress: UploadProgress) => void, signal: AbortSignal): Promise<string> {
    let job = await findJob(this.request, signal);
    if (job === undefined) {
      await this.sendFile(report, signal);
      const isThere = this.isBegun && (await untilAnswered(() => findPlace({ path: this.target }, signal), signal)) !== undefined;
      job = await startJob(isThere ? { ...this.request, options: { resume: true } } : this.request, signal);
    }
    this.isBegun = true;
    const ended = await followJob(job, ({ status, done, total }) => report({ text: status === 'queued' ? 'waits for the server' : 'working', done, total }), signal);
    // That it was imported the page says itself; what could not be is worth telling.
    return ['imported', ...(ended.messages ?? []).filter((message) => !message.startsWith('Imported '))].join('; ');
  }

  async delete(): Promise<void> {
    await deletePlace({ path: this.path });
  }

  private async sendFile(report: (progress: UploadProgress) => void, signal: AbortSignal): Promise<void> {
    const { size } = this.file;
    let done: number | undefined;
    for (let failures = 0; ; ) {
      try {
        const opened = await this.open(signal);
        for (let at = opened.received; at < size; failures = 0) {
          report({ text: 'uploaded', done: at, total: size });
          done = at = await this.sendPiece(opened, at, signal);
        }
        report({ text: 'uploaded', done: size, total: size });
        return;
      } catch (error) {
        if (signal.aborted || !(error instanceof RequestError)) throw error;
        if (this.mayShrink(error)) continue;
        if (!error.isPassing) throw error;
        this.piece = Math.min(this.piece, FIRST_PIECE);
        report({ text: `${error.message} This page asks again.`, done, total: size });
        await pause(error.retryAfter ?? Math.min(FIRST_PAUSE * 2 ** failures, LAST_PAUSE), signal);
        failures += 1;
      }
    }
  }

  /** Halves the pieces if that may help against an error. */
  private mayShrink({ kind, status }: RequestError): boolean {
    const isTooLarge = status === TOO_LARGE && kind !== 'over_quota';
    if (this.piece <= SMALLEST_PIECE || !(isTooLarge || TOO_SLOW.includes(status))) return false;
    this.piece /= 2;
    if (isTooLarge) this.largest = this.piece;
    return true;
  }

  /** Sends the bytes from `start` on, and says that they are there; returns where the next ones begin. */
  private async sendPiece({ root, dataset, most }: Opened, start: number, signal: AbortSignal): Promise<number> {
    const begun = performance.now();
    const size = Math.min(this.piece, most);
    // Whole chunks are stored without a look at what was there.
    const aligned = Math.floor((start + size) / MIB) * MIB;
    const stop = Math.min(aligned > start ? aligned : start + size, this.file.size);
    const bytes = await this.bytes(start, stop);
    await send(`/datasets/${dataset}/value`, { domain: this.path, select: `[${start}:${stop}]` }, { method: 'PUT', bytes, signal });
    const body = integer(stop);
    await send(`/groups/${root}/attributes/received`, { domain: this.path, replace: 1 }, { method: 'PUT', body, signal });
    if (performance.now() - begun < QUICK) this.piece = Math.min(2 * this.piece, this.largest);
    return stop;
  }

  private async bytes(start: number, stop: number): Promise<ArrayBuffer> {
    try {
      return await this.file.slice(start, stop).arrayBuffer();
    } catch {
      throw new Error(`${this.file.name} was changed or moved, or cannot be read: choose it again.`);
    }
  }

  /** Finds the upload, or makes it, or goes on with making it. */
  private async open(signal: AbortSignal): Promise<Opened> {
    const query = { domain: this.path };
    const found = await findPlace({ path: this.path }, signal);
    const record: Answer = found ?? (await sendJson<Answer>('/', query, { method: 'PUT', body: {}, signal }));
    const root = this.rootOf(record);
    const group = await this.read(root, signal);
    if (!this.compare(group)) {
      const { name, size, lastModified } = this.file;
      const attributes = { name: text(name), size: integer(size), modified: integer(lastModified) };
      await send(`/groups/${root}/attributes`, query, { method: 'PUT', body: { attributes }, signal });
    }
    const most = Math.min(record.limits?.max_request_size ?? MIB, LARGEST_PIECE);
    const dataset = group.links?.['bytes']?.id ?? (await this.makeBytes(root, signal));
    return { root, dataset, most, received: stateOf(group)?.received ?? 0 };
  }

  private async makeBytes(root: string, signal: AbortSignal): Promise<string> {
    const { size } = this.file;
    const layout = { class: 'H5D_CHUNKED', dims: [Math.min(size, MIB)] };
    const body = { type: 'H5T_STD_U8LE', shape: [size], creationProperties: { layout }, link: { id: root, name: 'bytes' } };
    return (await sendJson<HdfObject>('/datasets', { domain: this.path }, { method: 'POST', body, signal })).id;
  }

  private async read(root: string, signal: AbortSignal): Promise<Group> {
    return sendJson<Group>(`/groups/${root}`, { domain: this.path, include_attrs: 1, include_links: 1 }, { signal });
  }

  private rootOf({ root }: DomainRecord): string {
    if (root === undefined) throw new OtherUpload(`There is a folder ${this.path}: rename it, or the file.`);
    return root;
  }

  /** Says whether an upload is that of the file; not if nothing was said of it. Raises an error if it is another's. */
  private compare(group: Group): boolean {
    const state = stateOf(group);
    const { name, size, lastModified } = this.file;
    if (state === undefined) {
      const isEmpty = Object.keys(group.attributes ?? {}).length === 0 && Object.keys(group.links ?? {}).length === 0;
      if (!isEmpty) throw new OtherUpload(`${this.path} exists already, and is no upload: rename it, or the file.`);
      return false;
    }
    if (state.name !== name || state.size !== size || state.modified !== lastModified) {
      throw new OtherUpload(`Another file of this name, or an older state of this one, is in the unfinished upload ${this.path}: delete that first.`);
    }
    return true;
  }
}

/** What the root group of an upload says of it; undefined if it is that of no upload. */
export function stateOf(group: HdfObject): UploadState | undefined {
  const valueOf = (name: string): unknown => group.attributes?.[name]?.value;
  const [name, size, modified, received] = ['name', 'size', 'modified', 'received'].map(valueOf);
  if (typeof name !== 'string' || typeof size !== 'number' || typeof modified !== 'number') return undefined;
  const bytes = group.links?.['bytes']?.id;
  if (group.links?.['bytes'] !== undefined && (bytes === undefined || collectionOf({ id: bytes }) !== 'datasets')) return undefined;
  const isNumber = typeof received === 'number' && Number.isInteger(received) && received >= 0 && received <= size;
  return { name, size, modified, received: isNumber ? received : 0 };
}

/** Whether a domain's name is that of an upload. */
export function isUploadName(path: string): boolean {
  return path.endsWith(SUFFIX);
}

/** Reads what is uploaded; undefined of a domain that is no upload. */
export async function readUpload(path: string, root: string, bucket: string | undefined, signal: AbortSignal): Promise<UploadState | undefined> {
  return stateOf(await sendJson<HdfObject>(`/groups/${root}`, { domain: path, bucket, include_attrs: 1, include_links: 1 }, { signal }));
}

function integer(value: number): object {
  return { type: 'H5T_STD_I64LE', value };
}

function text(value: string): object {
  return { type: { class: 'H5T_STRING', charSet: 'H5T_CSET_UTF8', strPad: 'H5T_STR_NULLTERM', length: 'H5T_VARIABLE' }, value };
}
