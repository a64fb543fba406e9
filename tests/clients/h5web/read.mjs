/* `node read.mjs URL DOMAIN`: print all that H5Web's HSDS provider finds in a domain, as JSON by path. */

import { HsdsProvider, buildBasicAuthHeader, createBasicFetcher, useDataContext } from "@h5web/app";
import { createElement } from "react";
import { renderToString } from "react-dom/server";

const [url, filepath] = process.argv.slice(2);

/** Return what the provider gives the components below it. */
function provided() {
  let context;
  function Below() {
    context = useDataContext();
    return null;
  }
  const fetcher = createBasicFetcher({ headers: buildBasicAuthHeader("admin", "any") });
  renderToString(createElement(HsdsProvider, { url, filepath, fetcher }, createElement(Below)));
  return context;
}

/** Read from a store of the provider, which throws a promise while it waits, as React's suspense wants. */
async function read(store, key) {
  for (;;) {
    try {
      return store.get(key);
    } catch (waiting) {
      if (!(waiting instanceof Promise)) throw waiting;
      await waiting;
    }
  }
}

async function walk({ entitiesStore, valuesStore, attrValuesStore }, path, found) {
  const entity = await read(entitiesStore, path);
  const { kind, type, shape, link } = entity;
  const attributes = entity.attributes.length > 0 ? await read(attrValuesStore, entity) : {};
  found[path] = { kind, type, shape, link, attributes, attributeTypes: entity.attributes };
  if (kind === "dataset" && shape.class !== "Null") {
    found[path].value = await read(valuesStore, { dataset: entity });
    if (shape.dims?.length === 2) {
      found[path].row = await read(valuesStore, { dataset: entity, selection: "1,:" });
    }
  }
  for (const child of entity.children ?? []) {
    await walk({ entitiesStore, valuesStore, attrValuesStore }, child.path, found);
  }
}

const found = {};
await walk(provided(), "/", found);
console.log(JSON.stringify(found));
