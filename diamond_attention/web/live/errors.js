/** What somebody who looks at the page can put right: one sentence. */
export class BundleError extends Error {}
