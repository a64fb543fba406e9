import react from '@vitejs/plugin-react';
import { resolve } from 'node:path';
import { defineConfig } from 'vite';
import { compressed, licences } from './bundle';

const OUT = process.env['EXPLORER_OUT'] ?? resolve(import.meta.dirname, '../hsparse/explorer/static');

export default defineConfig({
  plugins: [react(), licences(), compressed(OUT)],
  resolve: {
    // These compile code from text, which the page's Content-Security-Policy does not allow.
    alias: [
      { find: /^ndarray$/, replacement: resolve(import.meta.dirname, 'src/ndarray/ndarray.ts') },
      { find: /^ndarray-ops$/, replacement: resolve(import.meta.dirname, 'src/ndarray/ndarrayOps.ts') },
    ],
  },
  base: './',
  // The page is at /, what it names below /explorer/; both may lie below the path of a proxy.
  experimental: {
    renderBuiltUrl: (name, { hostType }) => (hostType === 'html' ? `./explorer/${name}` : { relative: true }),
  },
  build: {
    outDir: OUT,
    rollupOptions: { input: ['index.html', 'docs.html', 'sign-in.html'].map((name) => resolve(import.meta.dirname, name)) },
    emptyOutDir: true,
    assetsDir: '',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
    chunkSizeWarningLimit: 4000,
  },
});
