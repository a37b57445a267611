//! Rows in, bytes out: HTML, Markdown, SVG, JUnit.
