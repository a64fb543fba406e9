/** Reads an Arrow IPC stream with columns of a fixed width ("Arrow Columnar Format", Serialization and Interprocess Communication). */

import type { NumberType } from './types';

/** A column: the type of its numbers, or undefined for elements of bytes; and all its bytes, little-endian. */
export interface Column {
  type: NumberType | undefined;
  bytes: ArrayBuffer;
}

interface Field {
  name: string;
  type: NumberType | undefined;
  /** Bytes of an element. */
  size: number;
  pieces: Uint8Array<ArrayBuffer>[];
}

const CONTINUATION = 0xffffffff;
/** Message.fbs: members of `MessageHeader`; Schema.fbs: members of `Type`. */
const SCHEMA = 1;
const RECORD_BATCH = 3;
const INT = 2;
const FLOAT = 3;
const FIXED_SIZE_BINARY = 15;

/** Returns the columns of all batches together, by name; raises an `Error` if the stream is incomplete, or has other columns. */
export function readArrow(stream: ArrayBuffer): Map<string, Column> {
  const view = new DataView(stream);
  let fields: Field[] = [];
  let at = 0;
  for (;;) {
    if (at + 8 > stream.byteLength || view.getUint32(at, true) !== CONTINUATION) throw new Error('The answer is incomplete: try again.');
    const size = view.getUint32(at + 4, true);
    if (size === 0) break;
    const message = rootOf(view, at + 8);
    const body = at + 8 + size;
    const header = message.table(2);
    at = body + message.long(3);
    if (at > stream.byteLength) throw new Error('The answer is incomplete: try again.');
    if (header === undefined) throw new Error('The answer has a message without a header.');
    if (message.byte(1) === SCHEMA) fields = header.tables(1).map(fieldOf);
    else if (message.byte(1) === RECORD_BATCH) addBatch(fields, header, stream, body);
  }
  return new Map(fields.map((field) => [field.name, { type: field.type, bytes: joined(field.pieces) }]));
}

function fieldOf(table: Table): Field {
  const name = table.text(0);
  const type = table.table(3);
  switch (table.byte(2)) {
    case INT: {
      const size = (type?.int(0) ?? 0) / 8;
      return { name, type: { kind: type?.byte(1) ? 'i' : 'u', size, bigEndian: false }, size, pieces: [] };
    }
    case FLOAT: {
      const size = 2 << (type?.short(0) ?? 0);
      return { name, type: { kind: 'f', size, bigEndian: false }, size, pieces: [] };
    }
    case FIXED_SIZE_BINARY:
      return { name, type: undefined, size: type?.int(0) ?? 0, pieces: [] };
    default:
      throw new Error(`The answer has a column ${name} of another type than numbers.`);
  }
}

/** Adds the columns of a record batch: of each a buffer of validity, which is not used, and one of its elements. */
function addBatch(fields: Field[], batch: Table, stream: ArrayBuffer, body: number): void {
  const length = batch.long(0);
  const buffers = batch.vector(2);
  fields.forEach((field, number) => {
    const first = body + batch.longAt(buffers + 16 * (2 * number + 1));
    field.pieces.push(new Uint8Array(stream, first, length * field.size));
  });
}

function joined(pieces: Uint8Array<ArrayBuffer>[]): ArrayBuffer {
  const all = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all.buffer;
}

function rootOf(view: DataView, at: number): Table {
  return new Table(view, at + view.getUint32(at, true));
}

/** A table of FlatBuffers ("FlatBuffers Internals"). A field that is left out has the value 0. */
class Table {
  constructor(
    private readonly view: DataView,
    private readonly at: number,
  ) {}

  byte(field: number): number {
    const place = this.place(field);
    return place === undefined ? 0 : this.view.getUint8(place);
  }

  short(field: number): number {
    const place = this.place(field);
    return place === undefined ? 0 : this.view.getInt16(place, true);
  }

  int(field: number): number {
    const place = this.place(field);
    return place === undefined ? 0 : this.view.getInt32(place, true);
  }

  long(field: number): number {
    const place = this.place(field);
    return place === undefined ? 0 : this.longAt(place);
  }

  longAt(place: number): number {
    return Number(this.view.getBigInt64(place, true));
  }

  table(field: number): Table | undefined {
    const place = this.place(field);
    return place === undefined ? undefined : rootOf(this.view, place);
  }

  /** Returns where the elements of a vector begin; their number is in the four bytes before. */
  vector(field: number): number {
    const place = this.place(field);
    if (place === undefined) throw new Error('The answer has a message without its parts.');
    return place + this.view.getUint32(place, true) + 4;
  }

  tables(field: number): Table[] {
    const first = this.vector(field);
    return Array.from({ length: this.view.getUint32(first - 4, true) }, (_, at) => rootOf(this.view, first + 4 * at));
  }

  text(field: number): string {
    const first = this.vector(field);
    return new TextDecoder().decode(new Uint8Array(this.view.buffer, first, this.view.getUint32(first - 4, true)));
  }

  private place(field: number): number | undefined {
    const layout = this.at - this.view.getInt32(this.at, true);
    if (4 + 2 * field >= this.view.getUint16(layout, true)) return undefined;
    const offset = this.view.getUint16(layout + 4 + 2 * field, true);
    return offset === 0 ? undefined : this.at + offset;
  }
}
