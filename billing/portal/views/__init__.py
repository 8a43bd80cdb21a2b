"""Pages, one module a subject. A view finds what may be seen, asks a selector and renders; it holds no rule."""
