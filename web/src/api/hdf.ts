/** Objects of a domain as the server describes them (HDF5/JSON), all loaded by one request. */

import { sendJson } from './client';
import { attributeValue } from './elements';

export type HdfType = string | HdfTypeObject;

export interface HdfTypeObject {
  class: string;
  base?: HdfType;
  length?: number | 'H5T_VARIABLE';
  charSet?: string;
  strPad?: string;
  fields?: { name: string; type: HdfType }[];
  dims?: number[];
  mapping?: Record<string, number>;
  members?: { name: string; value: number }[];
  tag?: string;
  size?: number;
  id?: string;
}

export interface HdfShape {
  class: 'H5S_SIMPLE' | 'H5S_SCALAR' | 'H5S_NULL';
  dims?: number[];
  maxdims?: (number | string)[];
  /** The place of the first element in each dimension, of a dataset with lower bounds. */
  lower?: number[];
}

export interface HdfLink {
  class: string;
  id?: string;
  h5path?: string;
  h5domain?: string;
  file?: string;
}

export interface HdfAttribute {
  type: HdfType;
  shape: HdfShape;
  value?: unknown;
  /** `base64` where JSON cannot represent the value. */
  encoding?: string;
}

export interface HdfLayout {
  class?: string;
  dims?: number[];
  flags?: string[];
}

export interface HdfObject {
  id: string;
  shape?: HdfShape;
  type?: HdfType;
  links?: Record<string, HdfLink>;
  attributes?: Record<string, HdfAttribute>;
  created?: number;
  lastModified?: number;
  layout?: HdfLayout;
  creationProperties?: { layout?: HdfLayout; filters?: unknown[]; fillValue?: unknown };
}

export interface DomainRecord {
  root?: string;
  class: string;
  owner: string;
  created: number;
  lastModified: number;
  /** The number of the snapshot that it is. */
  snapshot?: number;
  domain_objs?: Record<string, HdfObject>;
}

/**
 * The most links that are followed to find one object, and how deep soft links may lead to soft links. A few soft
 * links, each of which names the next one several times, would take forever.
 */
const MAX_LINKS = 1000;
const MAX_DEPTH = 17;

interface Left {
  links: number;
  depth: number;
}

/** A folder, or a domain with all its objects. */
export class Domain {
  readonly objects: Map<string, HdfObject>;
  /** What soft links lead to, by absolute path. */
  private readonly followed = new Map<string, HdfObject | undefined>();

  constructor(
    readonly path: string,
    readonly bucket: string | undefined,
    readonly record: DomainRecord,
    objects?: Map<string, HdfObject>,
  ) {
    this.objects = objects ?? new Map(Object.entries(record.domain_objs ?? {}));
  }

  /** Loads it; of a domain all objects with their links and attributes by the same request. */
  static async load(path: string, bucket: string | undefined, signal?: AbortSignal): Promise<Domain> {
    const query = { domain: path, bucket, getobjs: 1, include_attrs: 1, ignore_nan: 1 };
    return new Domain(path, bucket, await sendJson<DomainRecord>('/', query, { signal }));
  }

  /** Returns the domain with something else of one object. */
  with(id: string, changed: Partial<HdfObject>): Domain {
    const objects = new Map(this.objects);
    const object = objects.get(id);
    if (object !== undefined) objects.set(id, { ...object, ...changed });
    return new Domain(this.path, this.bucket, this.record, objects);
  }

  get isFolder(): boolean {
    return this.record.root === undefined;
  }

  /** The parameters that name it in a request. */
  get query(): { domain: string; bucket: string | undefined } {
    return { domain: this.path, bucket: this.bucket };
  }

  get root(): HdfObject | undefined {
    return this.record.root === undefined ? undefined : this.objects.get(this.record.root);
  }

  /** Finds the object at a path, through soft links; undefined if there is none here. */
  resolve(path: string): HdfObject | undefined {
    return this.walk(path, { links: MAX_LINKS, depth: MAX_DEPTH });
  }

  /** Finds what a link in the group at path `group` leads to. */
  target(link: HdfLink, group: string): HdfObject | undefined {
    return this.follow(link, group, { links: MAX_LINKS, depth: MAX_DEPTH });
  }

  private walk(path: string, left: Left): HdfObject | undefined {
    let found = this.root;
    let at = '';
    for (const name of path.split('/').filter((part) => part !== '' && part !== '.')) {
      const link = found?.links?.[name];
      if (link === undefined) return undefined;
      left.links -= 1;
      found = this.follow(link, at, left);
      at += `/${name}`;
    }
    return found;
  }

  private follow(link: HdfLink, group: string, left: Left): HdfObject | undefined {
    if (link.id !== undefined) return this.objects.get(link.id);
    if (link.class !== 'H5L_TYPE_SOFT' || link.h5path === undefined) return undefined;
    const path = link.h5path.startsWith('/') ? link.h5path : `${group}/${link.h5path}`;
    if (this.followed.has(path)) return this.followed.get(path);
    if (left.links <= 0 || left.depth <= 0) {
      left.links = 0;
      return undefined;
    }
    // Until it is known it leads nowhere: so does a soft link that leads to itself.
    this.followed.set(path, undefined);
    left.depth -= 1;
    const found = this.walk(path, left);
    left.depth += 1;
    const isWhole = left.links > 0 || left.depth === MAX_DEPTH;
    if (isWhole) this.followed.set(path, found);
    else this.followed.delete(path);
    return found;
  }
}

export function collectionOf(object: HdfObject): 'groups' | 'datasets' | 'datatypes' {
  return object.id.startsWith('g-') ? 'groups' : object.id.startsWith('d-') ? 'datasets' : 'datatypes';
}

export function dimsOf(object: HdfObject): number[] {
  return object.shape?.dims ?? [];
}

export function isSparse(object: HdfObject): boolean {
  return (object.creationProperties?.layout?.flags ?? object.layout?.flags ?? []).includes('H5D_SPARSE_DATA');
}

/** The parameters of requests about a dataset, in which places are those that it has, with lower bounds also negative ones. */
export function placesQuery(domain: Domain, object: HdfObject): { domain: string; bucket: string | undefined; places: string | undefined } {
  return { ...domain.query, places: object.shape?.lower === undefined ? undefined : 'signed' };
}

/** Says whether a dimension may become longer. */
export function canGrow(object: HdfObject, dim: number): boolean {
  const limit = object.shape?.maxdims?.[dim];
  return limit !== undefined && (typeof limit === 'string' || limit === 0 || limit > (dimsOf(object)[dim] ?? 0));
}

/** Says whether the extent, or a lower bound, may change. */
export function isGrowing(object: HdfObject): boolean {
  return (object.shape?.lower !== undefined && object.shape.maxdims !== undefined) || dimsOf(object).some((_, dim) => canGrow(object, dim));
}

export function attributeText(object: HdfObject | undefined, name: string): string | undefined {
  const attribute = object?.attributes?.[name];
  const value = attribute === undefined ? undefined : attributeValue(attribute);
  const first = Array.isArray(value) && value.length === 1 ? value[0] : value;
  return typeof first === 'string' ? first : undefined;
}
