"""Views of the pages, one module a subject. A view checks rights, calls a selector and renders; it holds no rule."""
