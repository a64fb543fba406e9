/** The members of a group as a table of links. */

import { type Address, formatAddress } from '../address';
import { collectionOf, type Domain, dimsOf, type HdfObject, isSparse } from '../api/hdf';
import { addressOf, linkText } from '../api/links';
import { typeText } from '../api/types';

interface Props {
  domain: Domain;
  group: HdfObject;
  address: Address;
}

export function Members({ domain, group, address }: Props) {
  const links = Object.entries(group.links ?? {});
  if (links.length === 0) return <p className="notice">The group has no members.</p>;
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Members">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>What</th>
            <th>Shape</th>
            <th>Type</th>
          </tr>
        </thead>
        <tbody>
          {links.slice(0, 2000).map(([name, link]) => {
            const object = domain.target(link, address.path);
            const away = object === undefined ? addressOf(domain, link, address.path) : undefined;
            const path = address.path === '/' ? `/${name}` : `${address.path}/${name}`;
            return (
              <tr key={name}>
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
          })}
        </tbody>
      </table>
      {links.length > 2000 && <p className="notice">The first 2000 of {links.length} are listed: search for others in the tree.</p>}
    </div>
  );
}

function kindOf(object: HdfObject): string {
  const kind = { groups: 'group', datasets: 'dataset', datatypes: 'type' }[collectionOf(object)];
  return isSparse(object) ? 'sparse dataset' : kind;
}
