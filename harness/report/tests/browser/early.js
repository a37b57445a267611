// Stands first in the page: what goes wrong later is written down here.
window.found = { errors: [], requests: [] };
addEventListener("error", (event) => found.errors.push(String(event.message || event.target)), true);
addEventListener("unhandledrejection", (event) => found.errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => found.requests.push(event.blockedURI));
for (const level of ["error", "warn"]) console[level] = (...words) => found.errors.push(words.join(" "));
