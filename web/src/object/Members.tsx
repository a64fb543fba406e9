/** The members of a group as a table of links. */

import { type Address, formatAddress } from '../address';
import { collectionOf, type Domain, dimsOf, type HdfLink, type HdfObject, isSparse } from '../api/hdf';
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
            const path = address.path === '/' ? `/${name}` : `${address.path}/${name}`;
            return (
              <tr key={name}>
                <td>
                  <bdi>{object === undefined ? name : <a href={formatAddress({ domain: address.domain, bucket: address.bucket, path })}>{name}</a>}</bdi>
                </td>
                <td>{object === undefined ? targetText(link) : kindOf(object)}</td>
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

function targetText(link: HdfLink): string {
  const file = link.h5domain ?? link.file;
  return `link to ${file === undefined ? '' : `${file} `}${link.h5path ?? 'something else'}`;
}
