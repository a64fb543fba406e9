/** The API's description as a page, by Swagger UI. */

import SwaggerUI from 'swagger-ui-dist/swagger-ui-es-bundle.js';
import 'swagger-ui-dist/swagger-ui.css';
import './docs.css';
import { mendSwagger } from './mend';

interface System {
  React: { createElement: (type: string, properties: object | null, ...children: unknown[]) => unknown };
}

/** The name of an operation, without a link: it stands in a button, which may have none in it. */
const plainNames = {
  wrapComponents: {
    DeepLink:
      (_link: unknown, { React }: System) =>
      ({ text }: { text: string }) =>
        React.createElement('span', null, text),
  },
};

const root = document.getElementById('docs');
if (root === null) throw new Error('The page has no element for the description.');
mendSwagger(root);
SwaggerUI({
  url: new URL('openapi.json', document.baseURI).href,
  dom_id: '#docs',
  deepLinking: true,
  docExpansion: 'none',
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  plugins: [plainNames],
});
