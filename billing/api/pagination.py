"""Pages of lists: `?page=` and `?page_size=` up to 1,000."""

from typing import Final

from rest_framework.exceptions import ParseError
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request

LARGEST: Final = 1000


class PageNumber(PageNumberPagination):
    """Numbered pages whose size the client may choose within bounds."""

    page_size_query_param = "page_size"
    max_page_size = LARGEST
    invalid_page_message = "page {page_number!r}: {message}"

    def get_page_size(self, request: Request) -> int | None:
        asked = request.query_params.get(self.page_size_query_param)
        if asked is None:
            return self.page_size
        if not (asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) >= 1):
            raise ParseError(f"page_size {asked[:40]!r}: a whole number from 1, of which {LARGEST} is used at most")
        return min(int(asked), LARGEST)
