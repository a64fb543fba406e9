/** The members of a group as a table of links. */

import { type Address, formatAddress } from '../address';
import { collectionOf, type Domain, dimsOf, type HdfObject, isSparse } from '../api/hdf';
import { addressOf, linkText } from '../api/links';
import { typeText } from '../api/types';
import { LongTable } from '../shell/LongTable';

interface Props {
  domain: Domain;
  group: HdfObject;
  address: Address;
}

export function Members({ domain, group, address }: Props) {
  const links = Object.entries(group.links ?? {});
  if (links.length === 0) return <p className="notice">The group has no members.</p>;
  return (
    <LongTable
      label="Members"
      items={links}
      keyOf={([name]) => name}
      head={
        <tr>
          <th>Name</th>
          <th>What</th>
          <th>Shape</th>
          <th>Type</th>
        </tr>
      }
      row={([name, link], about) => {
        const object = domain.target(link, address.path);
        const away = object === undefined ? addressOf(domain, link, address.path) : undefined;
        const path = address.path === '/' ? `/${name}` : `${address.path}/${name}`;
        return (
          <tr {...about}>
            <td>
              <bdi>
                <a href={formatAddress(away ?? { domain: address.domain, bucket: address.bucket, path })}>{name}</a>
              </bdi>
            </td>
            <td>{object === undefined ? linkText(domain, link, address.path) : kindOf(object)}</td>
            <td>{object === undefined ? '' : dimsOf(object).join(' × ')}</td>
            <td>{object?.type === undefined ? '' : typeText(object.type).slice(0, 80)}</td>
          </tr>
        );
      }}
    />
  );
}

function kindOf(object: HdfObject): string {
  const kind = { groups: 'group', datasets: 'dataset', datatypes: 'type' }[collectionOf(object)];
  return isSparse(object) ? 'sparse dataset' : kind;
}
