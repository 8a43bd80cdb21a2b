"""Forms of pages: a refused form keeps its input, and each refusal stands beside its field.

A page with many forms gives each a key; it shows the refused form in place of the blank one of that key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from itertools import zip_longest
from typing import Any, Final, Self

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms.boundfield import BoundField
from django.forms.renderers import TemplatesSetting
from django.forms.utils import ErrorList
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.text import slugify
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.portal.input_names import input_name
from billing.runtime.translation import translated
from billing.tenancy.actors import actor_of
from billing.tenancy.models import Team
from metering.messages import UserError
from pricing.fields import FieldProblem, exact_number, shown, ungrouped

YEARS: Final = range(2000, 2200)


class Renderer(TemplatesSetting):
    """Django's renderer with the portal's templates for forms and fields."""

    form_template_name = "portal/parts/form.html"
    field_template_name = "portal/parts/field.html"


class Refusals(ErrorList):
    template_name = "portal/parts/field_errors.html"


class PageForm(forms.Form):
    """Form of a page, also of a button alone. It passes the POST of a page to a service.

    `known_by`: the hidden fields that tell several such forms of a page apart.
    `made`: the result of the service.  `error`: the refusal of the service.
    """

    default_renderer = Renderer
    known_by: tuple[str, ...] = ()
    made: Any = None
    error: UserError | None = None

    def __init__(
        self, data: Any = None, *, files: Any = None, key: object = "f", initial: Any = None,
        auto_id: str | bool | None = None,
    ) -> None:
        # the blank form and the sent one get the same key, by which `or_refused` matches them
        source = (initial or {}) if data is None else data
        self.key = " ".join([str(key), *(str(source.get(name, "")) for name in self.known_by)])
        ids = f"{slugify(self.key, allow_unicode=True)}-%s" if auto_id is None else auto_id
        super().__init__(data, files, initial=initial, auto_id=ids, error_class=Refusals, label_suffix="")
        for field in self.fields.values():
            field.error_messages["required"] = _("is missing")

    def done(self, act: Callable[..., object], **facts: Any) -> bool:
        """Call `act` with `facts` and the clean fields if the form is valid; return True on success. A refusal is kept."""
        if not self.is_valid():
            return False
        try:
            self.made = act(**facts, **self.cleaned_data)
        except UserError as error:
            self.refuse(error)
        return self.error is None

    def refuse(self, error: Any) -> None:
        """Keep a service's refusal, in the language of the reader."""
        self.error = error
        self.add_error(None, translated(error))

    def add_error(self, field: str | None, error: Any) -> None:
        """Add a refusal that names its field and the value typed."""
        rules = ValidationError(error).messages
        if field is not None:
            rules = [named(self.name_of(field), self[field].value(), rule) for rule in rules]
        super().add_error(field, ValidationError(rules))

    def name_of(self, field: str) -> str:
        """Return the name of a field for its refusals."""
        return str(self[field].label)

    def keep(self, field: str | None, text: str) -> None:
        """Keep a refusal that already names its field and value, beside the field if the form has it."""
        super().add_error(field if field in self.fields else None, text)

    def keep_all(self, problems: Iterable[FieldProblem], **called: str) -> None:
        """Keep each problem beside its field; `called`: the name of the field for another name in a problem."""
        for problem in problems:
            self.keep(called.get(problem.field, problem.field), translated(problem.message))

    @property
    def messages(self) -> list[str]:
        """Return every refusal, those of the whole form first, then in the order of the fields."""
        return [str(text) for name in ("__all__", *self.fields) for text in self.errors.get(name, ())]

    @property
    def message(self) -> str:
        """Return every refusal in one line."""
        return "; ".join(self.messages)

    def or_refused(self, refused: "PageForm | None") -> "PageForm":
        """Return `refused` if that is this form as it was sent, else this form."""
        same = refused is not None and type(refused) is type(self) and refused.key == self.key
        return refused if refused is not None and same else self


class RowForm(PageForm):
    """Row of a table of inputs, whose columns are sent as lists.

    `offered`: fields that always have a value; a row with no other value is empty.
    """

    offered: tuple[str, ...] = ()

    def __init__(self, data: Any = None, *, number: int = 0, initial: Any = None) -> None:
        super().__init__(data, initial=initial, auto_id=False)
        for name, field in self.fields.items():
            field.required = False
            field.widget.attrs["aria-label"] = f"{self[name].label} {number}"

    @classmethod
    def table(cls, data: QueryDict | None, stored: Iterable[Mapping[str, Any]]) -> list[Self]:
        """Return the rows as they were sent, else a row for each that is stored."""
        if data is not None:
            return cls.sent(data)
        return [cls(initial=row, number=number) for number, row in enumerate(stored, 1)]

    @classmethod
    def sent(cls, data: QueryDict) -> list[Self]:
        """Return the rows that are not empty, as they were sent; a missing column is empty."""
        columns = zip_longest(*(data.getlist(name) for name in cls.base_fields), fillvalue="")
        rows = [dict(zip(cls.base_fields, row, strict=True)) for row in columns]
        asking = [row for row in rows if any(row[name].strip() for name in row if name not in cls.offered)]
        return [cls(row, number=number) for number, row in enumerate(asking, 1)]


class RowsForm(PageForm):
    """Form with the rows of tables beside its fields."""

    rows: Sequence[RowForm] = ()

    def is_valid(self) -> bool:
        """Return True if neither a field nor a row is refused."""
        return super().is_valid() and not any(row.errors for row in self.rows)

    @property
    def messages(self) -> list[str]:
        """Return every refusal in the order of the page."""
        return super().messages + self.row_messages()

    def row_messages(self) -> list[str]:
        return [text for row in self.rows for text in row.messages]


class Text(forms.CharField):
    """Field for text without NUL characters and without blanks around it."""

    def to_python(self, value: Any) -> Any:
        # PostgreSQL refuses NUL in text
        return super().to_python(str(value or "").replace("\0", ""))


class Input(Text):
    """Field of a calculation, with its words, its name and a hint. `starred`: the calculation needs it."""

    def __init__(self, name: str, hint: str = "", *, starred: bool = False, **options: Any) -> None:
        self.starred = starred
        texts = {"label": input_name(name), "help_text": hint}
        super().__init__(required=False, **{**texts, **options})
        self.template_name = "portal/parts/input.html"


class InputsForm(PageForm):
    """Form of the inputs of a calculation, which checks them itself; its problems are kept beside them."""

    def __init__(self, data: Any, inputs: Mapping[str, Input], *, prefix: str, initial: Any = None) -> None:
        super().__init__(data, initial=initial, auto_id=f"{prefix}-%s")
        self.fields |= inputs

    def in_groups(self, groups: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, list[BoundField]]]:
        return [(gettext(title), [self[name] for name in names]) for title, names in groups]


class Line(Text):
    """Field for one line of printable text of up to `max_length` characters."""

    def run_validators(self, value: str) -> None:
        if len(value) > (self.max_length or 0) or not value.isprintable():
            rule = gettext("must be printable text of up to %(limit)s characters")
            raise ValidationError(rule % {"limit": self.max_length})


class ReasonForm(PageForm):
    """Form of a step and its reason, in an input that labels itself."""

    reason = Text(max_length=2000)

    def __init__(self, data: Any = None, *, key: object, label: Any, required: bool = True) -> None:
        super().__init__(data, key=key)
        field = self.fields["reason"]
        field.label, field.required = label, required
        field.widget.attrs |= {"aria-label": label, "placeholder": label}


class TeamChoice(forms.ModelChoiceField):
    """Choice of a team by its code: any that is no group, or one of `teams`."""

    default_error_messages = {"invalid_choice": _("there is no such team")}

    def __init__(self, teams: QuerySet[Team] | None = None, **options: Any) -> None:
        offered = Team.objects.filter(is_group=False).order_by("code") if teams is None else teams
        super().__init__(offered, to_field_name="code", **{"label": _("Team"), "empty_label": None, **options})

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.name or obj.code)


class Number(forms.DecimalField):
    """Field for a decimal, with or without thousands separators."""

    widget = forms.TextInput(attrs={"inputmode": "decimal"})
    default_error_messages = {"invalid": _("is not a decimal")}

    def to_python(self, value: Any) -> Any:
        text = ungrouped(str(value or "").strip())
        if text and exact_number(text) is None:
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(text)


class Day(forms.DateField):
    """Field for a day of the billing zone."""

    widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    default_error_messages = {"invalid": _("must be a day from 2000 to 2199 such as 2026-11-30")}

    def to_python(self, value: Any) -> Any:
        try:
            day = date.fromisoformat(str(value).strip()) if value else None
        except ValueError:
            # refused below: no year of YEARS
            day = date.min
        if day is not None and day.year not in YEARS:
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return day


class Midnight(Day):
    """Field for the start of a day of the billing zone, as an instant in UTC."""

    def to_python(self, value: Any) -> Any:
        day = super().to_python(value)
        return day and datetime.combine(day, time(), timezone.get_current_timezone()).astimezone(UTC)


class Moment(forms.DateTimeField):
    """Field for a date and time of the billing zone; its help text names the zone."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M:%S")
    default_error_messages = {"invalid": _("must be a local date and time such as 2026-10-31T18:00")}

    def __init__(self, **options: Any) -> None:
        super().__init__(help_text=lazy(timezone.get_current_timezone_name, str)(), **options)

    def to_python(self, value: Any) -> datetime | None:
        moment = super().to_python(str(value or "").strip())
        if moment is not None and not 1900 <= moment.year < YEARS.stop:
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return moment


def named(label: object, text: object, rule: str) -> str:
    """Return a refusal with the name of its field and the value typed."""
    if not str(text or "").strip():
        return gettext("%(field)s: %(text)s") % {"field": label, "text": rule}
    return gettext("%(field)s %(value)s: %(rule)s") % {"field": label, "value": shown(text), "rule": rule}


def acting(request: HttpRequest) -> dict[str, Any]:
    """Return the actor and the instant that every service asks for."""
    return {"actor": actor_of(request), "now": timezone.now()}
