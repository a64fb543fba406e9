/** H5Web's view of a domain: its objects are known already, and values come as binary, only what is drawn. */

import {
  DataProviderApi,
  DTypeClass,
  EntityKind,
  ShapeClass,
  type Attribute,
  type AttributeValues,
  type ChildEntity,
  type Dataset,
  type DType,
  type Entity,
  type ProvidedEntity,
  type Shape,
  type ValuesStoreParams,
} from '@h5web/app';
import { untilAnswered } from '../api/client';
import { attributeValue } from '../api/elements';
import { collectionOf, type Domain, type HdfObject, type HdfShape, type HdfType, isSparse } from '../api/hdf';
import { classOf, isBoolean, isComplex, memberMapping, numberType } from '../api/types';
import { extentOf, flatten, readValues, sizeOf, type Span, spanLength } from '../api/values';
import { nameOf } from '../address';
import { cut, formatElement } from '../shell/format';

/** The most elements that are read for one picture. */
export const MAX_ELEMENTS = 1 << 22;

/** Serves one domain to H5Web. Of the dataset at `windowPath` it shows the part in `window`. */
export class DomainProvider extends DataProviderApi {
  constructor(
    private readonly domain: Domain,
    private readonly windowPath: string,
    private readonly window: Span[] | undefined,
  ) {
    super(domain.path);
  }

  async getEntity(path: string): Promise<ProvidedEntity> {
    const object = this.domain.resolve(path);
    if (object === undefined) throw new Error(`There is nothing at ${path}.`);
    const entity = this.entity(object, path);
    if (entity.kind !== EntityKind.Group) return entity as ProvidedEntity;
    return { ...entity, kind: EntityKind.Group, children: this.children(object, path) };
  }

  override async getValue({ dataset, selection }: ValuesStoreParams, signal?: AbortSignal): Promise<unknown> {
    const object = this.domain.resolve(dataset.path);
    if (object === undefined) throw new Error(`There is nothing at ${dataset.path}.`);
    if (isSparse(object)) {
      throw new Error(`${dataset.path} is sparse, and this display cannot tell undefined from zero: choose it in the tree at the left of the page.`);
    }
    const spans = this.selected(dataset.path, object, selection);
    const count = sizeOf(spans);
    if (count > MAX_ELEMENTS) {
      throw new Error(`This picture needs ${count.toLocaleString('en')} elements, more than ${MAX_ELEMENTS.toLocaleString('en')}: name a part, or a step, in the selection above.`);
    }
    const type = object.type ?? '';
    const read = await untilAnswered(() => readValues(this.domain, object, spans, signal), signal);
    const found = isBoolean(type) ? Array.from(read as ArrayLike<unknown>, Boolean) : isPlain(type) ? read : Array.from(read as unknown[], (one) => shownOf(one, type));
    // H5Web asks for one element by a place in each dimension.
    const isOne = selection === undefined ? spans.length === 0 : !selection.includes(':');
    return isOne ? found[0] : found;
  }

  async getAttrValues(entity: Entity): Promise<AttributeValues> {
    const attributes = Object.entries(this.domain.resolve(entity.path)?.attributes ?? {});
    return Object.fromEntries(
      attributes.map(([name, attribute]) => {
        const { shape } = attribute;
        const value = attributeValue(attribute);
        return [name, shape.class === 'H5S_SIMPLE' ? flatten(value, (shape.dims ?? []).length) : value];
      }),
    );
  }

  /** Returns the spans in the dataset of an H5Web selection, in which `:` is all that the window has. */
  private selected(path: string, object: HdfObject, selection: string | undefined): Span[] {
    const window = this.windowOf(path, object);
    if (selection === undefined) return window;
    return selection.split(',').map((item, dim) => {
      const span = window[dim] ?? { start: 0, stop: 0, step: 1 };
      if (item === ':') return span;
      const at = span.start + Number(item) * span.step;
      return { start: at, stop: at + 1, step: 1 };
    });
  }

  private windowOf(path: string, object: HdfObject): Span[] {
    return (path === this.windowPath ? this.window : undefined) ?? extentOf(object);
  }

  private children(group: HdfObject, path: string): ChildEntity[] {
    return Object.entries(group.links ?? {}).map(([name, link]) => {
      const below = path === '/' ? `/${name}` : `${path}/${name}`;
      const object = this.domain.target(link, path);
      if (object !== undefined) return this.entity(object, below) as ChildEntity;
      return { name, path: below, kind: EntityKind.Unresolved, attributes: [] };
    });
  }

  private entity(object: HdfObject, path: string): Entity {
    const entity = { name: nameOf(path), path, attributes: attributesOf(object) };
    const collection = collectionOf(object);
    if (collection === 'groups') return { ...entity, kind: EntityKind.Group };
    const type = shownType(object.type ?? '');
    if (collection === 'datatypes') return { ...entity, kind: EntityKind.Datatype };
    const shape = shapeOf(object.shape);
    if (shape.class === ShapeClass.Array) shape.dims = this.windowOf(path, object).map(spanLength);
    const chunks = object.layout?.dims;
    const dataset: Dataset = { ...entity, kind: EntityKind.Dataset, shape, type, rawType: object.type };
    if (chunks !== undefined) dataset.chunks = chunks;
    return dataset;
  }
}

function attributesOf(object: HdfObject): Attribute[] {
  const attributes = Object.entries(object.attributes ?? {});
  return attributes.map(([name, { type, shape }]) => ({ name, shape: shapeOf(shape), type: typeOf(type) }));
}

export function shapeOf(shape: HdfShape | undefined): Shape {
  if (shape === undefined || shape.class === 'H5S_NULL') return { class: ShapeClass.Null };
  if (shape.class === 'H5S_SCALAR') return { class: ShapeClass.Scalar, dims: [] };
  return { class: ShapeClass.Array, dims: shape.dims ?? [] };
}

/** Says whether H5Web shows elements of a type as they are, also in compounds. Of complex numbers it does so only outside. */
function isPlain(type: HdfType): boolean {
  return numberType(type) !== undefined || classOf(type) === 'H5T_STRING';
}

/** Returns the type of a dataset as it is shown: what H5Web has no display for, also in compounds, is text. */
function shownType(type: HdfType): DType {
  const text = typeOf({ class: 'H5T_STRING', charSet: 'H5T_CSET_UTF8' });
  if (isPlain(type) || isComplex(type)) return typeOf(type);
  if (typeof type === 'string' || type.class !== 'H5T_COMPOUND') return text;
  const fields = (type.fields ?? []).map((field) => [field.name, isPlain(field.type) ? typeOf(field.type) : text] as const);
  return { class: DTypeClass.Compound, fields: new Map(fields) };
}

/** Returns an element for `shownType`. */
function shownOf(value: unknown, type: HdfType): unknown {
  if (isPlain(type) || isComplex(type)) return value;
  if (typeof type === 'string' || type.class !== 'H5T_COMPOUND' || !Array.isArray(value)) return cut(formatElement(value, type));
  return (type.fields ?? []).map((field, at) => (isPlain(field.type) ? value[at] : cut(formatElement(value[at], field.type))));
}

/** Returns a type as H5Web has it. */
export function typeOf(type: HdfType): DType {
  const number = numberType(type);
  if (isComplex(type)) {
    const part = { class: DTypeClass.Float, size: 8, endianness: undefined } as const;
    return { class: DTypeClass.Complex, realType: part, imagType: part };
  }
  if (number !== undefined) {
    const endianness = number.bigEndian ? 'big-endian' : 'little-endian';
    const base: DType =
      number.kind === 'f'
        ? { class: DTypeClass.Float, size: number.size * 8, endianness }
        : { class: DTypeClass.Integer, signed: number.kind === 'i', size: number.size * 8, endianness };
    if (isBoolean(type)) return { class: DTypeClass.Bool, base };
    if (typeof type !== 'string' && type.class === 'H5T_ENUM') {
      const names = Object.entries(memberMapping(type)).map(([name, value]) => [value, name]);
      return { class: DTypeClass.Enum, base, mapping: Object.fromEntries(names) as Record<number, string> };
    }
    return base;
  }
  return otherType(type);
}

function otherType(type: HdfType): DType {
  if (typeof type === 'string') return { class: DTypeClass.Unknown };
  switch (classOf(type)) {
    case 'H5T_STRING':
      return { class: DTypeClass.String, charSet: type.charSet === 'H5T_CSET_UTF8' ? 'UTF-8' : 'ASCII', strPad: undefined };
    case 'H5T_COMPOUND':
      return { class: DTypeClass.Compound, fields: new Map((type.fields ?? []).map((field) => [field.name, typeOf(field.type)])) };
    case 'H5T_ARRAY':
      return { class: DTypeClass.Array, base: typeOf(type.base ?? ''), dims: type.dims ?? [] };
    case 'H5T_VLEN':
      return { class: DTypeClass.VLen, base: typeOf(type.base ?? '') };
    case 'H5T_OPAQUE':
      return { class: DTypeClass.Opaque, tag: type.tag ?? '' };
    case 'H5T_REFERENCE':
      return { class: DTypeClass.Reference };
    default:
      return { class: DTypeClass.Unknown };
  }
}
