"""Pages of lists: `?page=` and `?page_size=` up to 1,000."""

from rest_framework.pagination import PageNumberPagination


class PageNumber(PageNumberPagination):
    """Numbered pages whose size the client may choose within bounds."""

    page_size_query_param = "page_size"
    max_page_size = 1000
    invalid_page_message = "page {page_number!r}: {message}"
