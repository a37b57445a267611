//! Declaration errors as a person reads them: file, line, column, the underlined place, help.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::fault::{DeclarationError, DeclarationErrors};

/// How errors are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text only.
    Plain,
    /// With ANSI colors, for terminals.
    Colored,
}

impl DeclarationErrors {
    /// Draws every error, one after another, with a blank line between.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let drawn: Vec<String> = self.0.iter().map(|error| error.render(style)).collect();
        drawn.join("\n\n")
    }
}

impl DeclarationError {
    /// Draws the error.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let renderer = match style {
            Style::Plain => Renderer::plain(),
            Style::Colored => Renderer::styled(),
        };
        let title = self.fault.title();
        let label = self.fault.label();
        let mut group = Level::ERROR
            .primary_title(title.as_str())
            .id(self.fault.code())
            .element(self.snippet(&label));
        let help = self.fault.help();
        if let Some(help) = &help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let groups: [Group<'_>; 1] = [group];
        renderer.render(&groups)
    }

    fn snippet<'a>(&'a self, label: &'a str) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let text = self.file.text.as_str();
        let mut snippet = Snippet::source(text)
            .path(self.file.path.as_str())
            .annotation(AnnotationKind::Primary.span(within(text, &self.span)).label(label));
        if let Some((span, label)) = &self.related {
            snippet = snippet
                .annotation(AnnotationKind::Context.span(within(text, span)).label(label.as_str()));
        }
        snippet
    }
}

/// The span cut to its first line and to character boundaries, so that a wrong span draws a short mark and never panics.
fn within(text: &str, span: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let down = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = down(span.start);
    let end = down(span.end.max(span.start));
    let line = text[start..end].find('\n').map_or(end, |at| start + at);
    start..line
}
