/** Data frames as AnnData keeps them, also before its version 0.7: their index, their columns, and what of them is not usable. */

import { nameOf, parentOf } from '../address';
import { attributeValue, canDecode } from '../api/elements';
import { attributeText, collectionOf, type Domain, dimsOf, type HdfObject, isSparse } from '../api/hdf';

/** A column of text or numbers: a dataset, or a field of a dataset of compounds. */
export interface Column {
  name: string;
  dataset: HdfObject;
  field?: string | undefined;
  /** The names that the column's numbers stand for. */
  categories?: HdfObject | undefined;
  /** Whether the order of the categories means something. */
  isOrdered?: boolean;
  /** Where it is true the column has no value. */
  mask?: HdfObject | undefined;
  length: number;
}

export interface Frame {
  /** The names of the rows; undefined if there are none, and the rows are known by their numbers. */
  index: Column | undefined;
  columns: Column[];
  length: number;
  /** What is not shown, and why, in sentences. */
  problems: string[];
}

const NULLABLE = ['nullable-integer', 'nullable-boolean', 'nullable-string-array'];
/** Where AnnData before 0.7 had its frames, as datasets of compounds. */
const COMPOUNDS = ['/obs', '/var', '/raw.var'];
/** The group of names of categories of AnnData 0.7. */
const OLD_CATEGORIES = '__categories';

/** Returns the frame at a path; undefined if what is there is none. */
export function frameAt(domain: Domain, path: string): Frame | undefined {
  const object = domain.resolve(path);
  if (object === undefined) return undefined;
  if (collectionOf(object) === 'datasets') return COMPOUNDS.includes(path) ? frameOfCompounds(domain, object) : undefined;
  if (collectionOf(object) !== 'groups') return undefined;
  const isFrame = attributeText(object, 'encoding-type') === 'dataframe' || attributeText(object, '_index') !== undefined;
  return isFrame || isBareTable(object, path) ? frameOfGroup(domain, object, path) : undefined;
}

/** Says whether a group is a table of cells or genes that says nothing of itself: it has an index. */
function isBareTable({ links }: HdfObject, path: string): boolean {
  return ['obs', 'var'].includes(nameOf(path)) && indexIn(links) !== undefined;
}

/** Returns the name of what has the names of the rows, where no attribute says it. */
function indexIn(links: HdfObject['links']): string | undefined {
  return ['_index', 'index'].find((name) => links?.[name] !== undefined);
}

/** Returns the fields of a table of compounds, the index first; AnnData before 0.7 kept the names of categories in `uns`. */
function frameOfCompounds(domain: Domain, table: HdfObject): Frame | undefined {
  const type = table.type ?? '';
  const fields = typeof type === 'string' ? [] : (type.fields ?? []);
  if (fields.length === 0 || dimsOf(table).length !== 1) return undefined;
  const length = dimsOf(table)[0] ?? 0;
  const [index, ...columns] = fields.map(({ name }) => ({ name, field: name, dataset: table, categories: domain.resolve(`/uns/${name}_categories`), length }));
  return { index, columns, length, problems: [] };
}

function frameOfGroup(domain: Domain, group: HdfObject, path: string): Frame {
  const problems: string[] = [];
  const usable = (name: string, what: string): Column | undefined => {
    const found = columnAt(domain, `${path}/${name}`, name);
    if (typeof found !== 'string') return found;
    problems.push(`${what} ${name} is not shown: ${found}.`);
    return undefined;
  };
  const indexName = attributeText(group, '_index') ?? indexIn(group.links);
  const index = indexName === undefined ? undefined : usable(indexName, 'The index');
  if (indexName === undefined) problems.push('The frame has no attribute _index: its rows have numbers.');
  const ordered = namesIn(group, 'column-order');
  const inGroup = Object.keys(group.links ?? {}).filter((name) => name !== indexName && name !== OLD_CATEGORIES);
  const names = (ordered ?? inGroup).filter((name) => name !== indexName);
  if (ordered === undefined) problems.push('The frame has no attribute column-order: its columns have the order of the group.');
  const found = [...new Set(names)].map((name) => usable(name, 'The column')).filter((one) => one !== undefined);
  const length = index?.length ?? found[0]?.length ?? 0;
  const columns = found.filter((one) => {
    if (one.length !== length) problems.push(`The column ${one.name} is not shown: it has ${one.length} values, and the frame ${length} rows.`);
    return one.length === length;
  });
  const others = ordered === undefined ? [] : inGroup.filter((name) => !ordered.some((one) => one === name || one.startsWith(`${name}/`)));
  if (others.length > 0) problems.push(`The attribute column-order does not name what is in the group, too: ${others.slice(0, 20).join(', ')}.`);
  return { index, columns, length, problems };
}

/** Returns an attribute that is a list of names; undefined without it. */
function namesIn(object: HdfObject, name: string): string[] | undefined {
  const attribute = object.attributes?.[name];
  if (attribute === undefined) return undefined;
  const value = attributeValue(attribute);
  return (Array.isArray(value) ? value : value === null || value === undefined ? [] : [value]).map(String);
}

/** Returns the column at a path, or why it is none. */
function columnAt(domain: Domain, path: string, name: string): Column | string {
  const object = domain.resolve(path);
  if (object === undefined) return 'there is nothing of that name in the group';
  const encoding = attributeText(object, 'encoding-type');
  const part = (of: string) => domain.resolve(`${path}/${of}`);
  if (collectionOf(object) === 'datasets') return checked({ name, dataset: object, ...oldCategories(domain, object, path) });
  const [codes, values, mask] = [part('codes'), part('values'), part('mask')];
  if (codes !== undefined) {
    const categories = part('categories');
    if (categories === undefined) return 'it has codes, and no categories';
    const isOrdered = [true, 1].includes(scalarOf(object, 'ordered') as boolean);
    return checked({ name, dataset: codes, isOrdered, categories: collectionOf(categories) === 'groups' ? part('categories/values') : categories });
  }
  if (NULLABLE.includes(encoding ?? '')) {
    if (values === undefined || mask === undefined) return `it has no ${values === undefined ? 'values' : 'mask'}`;
    return checked({ name, dataset: values, mask });
  }
  return `a table has no form for ${encoding === undefined ? 'a group' : `the encoding ${encoding}`}`;
}

/** Returns the categories that a dataset of AnnData 0.7 refers to, if it has any. */
function oldCategories(domain: Domain, codes: HdfObject, path: string): Pick<Column, 'categories' | 'isOrdered'> {
  const reference = scalarOf(codes, 'categories');
  const id = typeof reference === 'string' ? reference.slice(reference.lastIndexOf('/') + 1) : '';
  const categories = domain.objects.get(id) ?? domain.resolve(`${parentOf(path)}/${OLD_CATEGORIES}/${nameOf(path)}`);
  if (categories === undefined) return {};
  return { categories, isOrdered: [true, 1].includes(scalarOf(categories, 'ordered') as boolean) };
}

function scalarOf(object: HdfObject, name: string): unknown {
  const attribute = object.attributes?.[name];
  const value = attribute === undefined ? undefined : attributeValue(attribute);
  return Array.isArray(value) && value.length === 1 ? value[0] : value;
}

/** Returns a column with its length, or why its parts do not fit. */
function checked(column: Omit<Column, 'length'>): Column | string {
  const { dataset, categories, mask } = column;
  for (const part of [dataset, categories, mask]) {
    if (part === undefined) continue;
    if (collectionOf(part) !== 'datasets') return 'it has no dataset';
    if (part.shape?.class !== 'H5S_SIMPLE' || dimsOf(part).length !== 1) return `it has ${dimsOf(part).length} dimensions, not one`;
    if (isSparse(part)) return 'it is sparse: choose it in the tree';
    if (!canDecode(part.type ?? '')) return 'this page cannot read its type';
  }
  const length = dimsOf(dataset)[0] ?? 0;
  if (mask !== undefined && dimsOf(mask)[0] !== length) return `it has ${length} values, and a mask of ${dimsOf(mask)[0]}`;
  return { ...column, length };
}
