import billing.invoices.models.draft_text
import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("approvals", "0001_initial"),
        ("rating", "0001_initial"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("draft", "draft"),
                            ("preview", "shown to its team"),
                            ("approved", "approved"),
                            ("issued", "issued"),
                            ("void", "void"),
                        ],
                        default="draft",
                        max_length=16,
                    ),
                ),
                ("shadow", models.BooleanField(default=False)),
                ("currency", models.CharField(max_length=3)),
                ("total", models.DecimalField(decimal_places=2, max_digits=20)),
                (
                    "draft",
                    billing.invoices.models.draft_text.DraftField(
                        help_text="everything the document will say but its number and its predecessor"
                    ),
                ),
                ("approved_by", models.CharField(blank=True, max_length=200)),
                ("void_reason", models.TextField(blank=True)),
                ("number", models.CharField(max_length=100, null=True, unique=True)),
                ("fiscal_year", models.IntegerField(null=True)),
                ("sequence", models.IntegerField(null=True)),
                ("issuer", models.CharField(max_length=64)),
                ("document", models.TextField(blank=True, help_text="canonical JSON, the bytes that the hash is of")),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("previous_sha256", models.CharField(blank=True, max_length=64)),
                ("issued_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="CorrectionProposal",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="BillingPeriod",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.CharField(max_length=7, unique=True)),
                ("zone", models.CharField(max_length=64)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                (
                    "status",
                    models.CharField(
                        choices=[("open", "open"), ("closing", "closing"), ("closed", "closed")],
                        default="open",
                        max_length=16,
                    ),
                ),
                (
                    "close_seq",
                    models.IntegerField(help_text="number of the close; set with the cut-off", null=True, unique=True),
                ),
                ("closed_at", models.DateTimeField(null=True)),
                ("closed_by", models.CharField(blank=True, max_length=200)),
            ],
            options={
                "ordering": ["month"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("close_seq", None), ("status", "open")),
                            models.Q(models.Q(("status", "open"), _negated=True), ("close_seq__isnull", False)),
                            _connector="OR",
                        ),
                        name="closing_has_an_ordinal",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Correction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[("draft", "draft"), ("approved", "approved"), ("issued", "issued"), ("void", "void")],
                        default="draft",
                        max_length=16,
                    ),
                ),
                (
                    "reason_code",
                    models.CharField(
                        choices=[
                            ("price", "wrong price"),
                            ("quantity", "wrong quantity"),
                            ("ownership", "wrong team"),
                            ("mfu", "wrong efficiency data"),
                            ("sla", "fault of the platform"),
                            ("duplicate", "billed twice"),
                            ("goodwill", "goodwill"),
                            ("write_off", "written off"),
                        ],
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField()),
                ("evidence", models.TextField(blank=True, help_text="ticket, incident or page that shows the error")),
                ("currency", models.CharField(max_length=3)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("decided_by", models.CharField(blank=True, max_length=200)),
                ("decided_at", models.DateTimeField(null=True)),
                ("decision", models.TextField(blank=True, help_text="why it was voided")),
                ("issued_at", models.DateTimeField(null=True)),
                (
                    "change",
                    models.OneToOneField(
                        help_text="the change of closed time that it follows from; none where a person wrote it",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="correction",
                        to="rating.retroactivechange",
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="corrections",
                        to="invoices.billingperiod",
                    ),
                ),
                (
                    "proposal",
                    models.ForeignKey(
                        help_text="of the correction, or of the change of closed time that it follows from",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="corrections",
                        to="approvals.proposal",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="InvoiceSums",
            fields=[
                (
                    "invoice",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sums",
                        serialize=False,
                        to="invoices.invoice",
                    ),
                ),
                ("gpu", models.DecimalField(decimal_places=2, max_digits=20)),
                ("tokens", models.DecimalField(decimal_places=2, max_digits=20)),
                ("other", models.DecimalField(decimal_places=2, help_text="of all other kinds of lines", max_digits=20)),
                ("facets", models.TextField()),
            ],
        ),
        migrations.AddField(
            model_name="invoice",
            name="period",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="invoices.billingperiod"
            ),
        ),
        migrations.AddField(
            model_name="invoice",
            name="team",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="tenancy.team"),
        ),
        migrations.CreateModel(
            name="InvoiceLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("cluster", models.CharField(blank=True, max_length=512)),
                ("namespace", models.CharField(blank=True, max_length=512)),
                ("consumer", models.CharField(blank=True, max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("sku", models.CharField(max_length=512)),
                ("token_class", models.CharField(blank=True, max_length=32)),
                ("charge_period", models.CharField(max_length=7)),
                ("unit", models.CharField(max_length=16)),
                ("price_version", models.CharField(max_length=200)),
                ("policy", models.CharField(blank=True, max_length=200)),
                ("reason", models.CharField(blank=True, max_length=32)),
                ("position", models.IntegerField()),
                ("correction", models.BooleanField(default=False)),
                ("quantity", models.DecimalField(decimal_places=6, max_digits=30)),
                ("unit_price", models.DecimalField(decimal_places=16, max_digits=26)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("energy_kwh", models.DecimalField(decimal_places=3, max_digits=20, null=True)),
                (
                    "invoice",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lines",
                        to="invoices.invoice",
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="JournalExport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("batch_hash", models.CharField(max_length=64)),
                ("journals", models.IntegerField()),
                (
                    "debit",
                    models.DecimalField(
                        decimal_places=2, help_text="sum of the debit side, equal to the credit side", max_digits=20
                    ),
                ),
                (
                    "documents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        default=list,
                        help_text="numbers of what it posts",
                        size=None,
                    ),
                ),
                (
                    "in_part",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        default=list,
                        help_text="numbers of what it posts without a disputed part",
                        size=None,
                    ),
                ),
                ("exported_at", models.DateTimeField()),
                ("exported_by", models.CharField(max_length=200)),
                ("reference", models.CharField(blank=True, help_text="of the posting in the ledger", max_length=200)),
                ("acknowledged_at", models.DateTimeField(null=True)),
                ("acknowledged_by", models.CharField(blank=True, max_length=200)),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="journal_exports",
                        to="invoices.billingperiod",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Note",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("credit", "credit note"), ("rebill", "rebill")], max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("total", models.DecimalField(decimal_places=2, max_digits=20)),
                (
                    "draft",
                    models.JSONField(help_text="everything the document will say but its period, number and predecessor"),
                ),
                ("number", models.CharField(max_length=100, null=True, unique=True)),
                ("fiscal_year", models.IntegerField(null=True)),
                ("sequence", models.IntegerField(null=True)),
                ("issuer", models.CharField(max_length=64)),
                ("document", models.TextField(blank=True, help_text="canonical JSON, the bytes that the hash is of")),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("previous_sha256", models.CharField(blank=True, max_length=64)),
                ("issued_at", models.DateTimeField(null=True)),
                (
                    "correction",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="notes", to="invoices.correction"
                    ),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        help_text="the invoice that is corrected; none where the team had none",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="notes",
                        to="invoices.invoice",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="notes", to="tenancy.team"),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="DocumentMail",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.EmailField(max_length=254)),
                ("language", models.CharField(choices=[("zh-hans", "中文"), ("en", "English")], max_length=8)),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "waits"), ("sent", "sent"), ("failed", "failed")],
                        default="pending",
                        max_length=8,
                    ),
                ),
                ("round", models.IntegerField(default=1)),
                ("attempts", models.IntegerField(default=0, help_text="within this round")),
                ("queued_at", models.DateTimeField()),
                ("next_attempt_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, help_text="what the mail server said last")),
                (
                    "invoice",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="mails", to="invoices.invoice"
                    ),
                ),
                (
                    "note",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="mails", to="invoices.note"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="DocumentEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("disputed", "a dispute was opened"),
                            ("decided", "a dispute was decided"),
                            ("settled", "posted to the ledger"),
                        ],
                        max_length=16,
                    ),
                ),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=200)),
                (
                    "reference",
                    models.CharField(blank=True, help_text="posting in the ledger, or the dispute", max_length=200),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="events", to="invoices.invoice"
                    ),
                ),
                (
                    "note",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="events", to="invoices.note"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="NoteLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("cluster", models.CharField(blank=True, max_length=512)),
                ("namespace", models.CharField(blank=True, max_length=512)),
                ("consumer", models.CharField(blank=True, max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("sku", models.CharField(max_length=512)),
                ("token_class", models.CharField(blank=True, max_length=32)),
                ("charge_period", models.CharField(max_length=7)),
                ("unit", models.CharField(max_length=16)),
                ("price_version", models.CharField(max_length=200)),
                ("policy", models.CharField(blank=True, max_length=200)),
                ("reason", models.CharField(blank=True, max_length=32)),
                ("position", models.IntegerField()),
                (
                    "style",
                    models.CharField(
                        choices=[
                            ("reversal", "the whole line, reversed"),
                            ("withdrawal", "earlier credits of a reversed line, taken back"),
                            ("allowance", "an amount of the line"),
                            ("rebill", "charged instead"),
                        ],
                        max_length=16,
                    ),
                ),
                ("close_seq", models.IntegerField()),
                ("change_seq", models.IntegerField(default=0)),
                ("quantity", models.DecimalField(decimal_places=6, max_digits=30, null=True)),
                ("unit_price", models.DecimalField(decimal_places=16, max_digits=26, null=True)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("usage_quantity", models.DecimalField(decimal_places=12, max_digits=40, null=True)),
                ("facility_kw", models.DecimalField(decimal_places=6, max_digits=12, null=True)),
                ("energy_kwh", models.DecimalField(decimal_places=3, max_digits=20, null=True)),
                (
                    "invoice_line",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credits",
                        to="invoices.invoiceline",
                    ),
                ),
                (
                    "note",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="lines", to="invoices.note"),
                ),
                (
                    "note_line",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credits",
                        to="invoices.noteline",
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="NumberSeries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("invoice", "invoices"), ("credit", "credit notes"), ("rebill", "rebills")],
                        default="invoice",
                        max_length=16,
                    ),
                ),
                ("issuer", models.CharField(max_length=64)),
                ("fiscal_year", models.IntegerField()),
                ("last_number", models.IntegerField(default=0)),
                ("last_sha256", models.CharField(blank=True, max_length=64)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "issuer", "fiscal_year"), name="one_counter_per_series")
                ],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=32)),
                ("month", models.CharField(max_length=7)),
                ("parameters", models.JSONField(default=dict)),
                ("requested_by", models.CharField(max_length=200)),
                ("requested_at", models.DateTimeField(auto_now_add=True)),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "pending"), ("done", "done"), ("refused", "refused"), ("failed", "failed")],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("message", models.TextField(blank=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "step",
                    models.CharField(
                        blank=True, default="", help_text="what a runner was at when it last told", max_length=16
                    ),
                ),
                ("done", models.IntegerField(default=0)),
                ("total", models.IntegerField(default=0, help_text="how many parts the step has, 0 where nobody counts")),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(fields=["status", "id"], name="operation_pending")],
            },
        ),
        migrations.CreateModel(
            name="BillingContact",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.EmailField(max_length=254)),
                ("name", models.CharField(blank=True, help_text="of the person or the desk", max_length=200)),
                ("language", models.CharField(choices=[("zh-hans", "中文"), ("en", "English")], max_length=8)),
                ("valid_from", models.DateField()),
                ("valid_until", models.DateField(help_text="first day on which it gets nothing any more", null=True)),
                ("set_by", models.CharField(max_length=200)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="billing_contacts", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["team__code", "address", "valid_from"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_until", None), ("valid_until__gte", models.F("valid_from")), _connector="OR"
                        ),
                        name="a_contact_ends_after_it_begins",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("valid_until", None)),
                        fields=("team", "address"),
                        name="one_open_contact_per_address",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BillingMode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("from_month", models.CharField(max_length=7)),
                (
                    "mode",
                    models.CharField(choices=[("shadow", "shown, not charged"), ("chargeback", "charged")], max_length=16),
                ),
                ("reason", models.TextField()),
                ("set_by", models.CharField(max_length=200)),
                ("set_at", models.DateTimeField()),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="billing_modes", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["team_id", "from_month"],
                "constraints": [models.UniqueConstraint(fields=("team", "from_month"), name="one_billing_mode_per_month")],
            },
        ),
        migrations.AddConstraint(
            model_name="correction",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="correction_has_a_reason"
            ),
        ),
        migrations.AddConstraint(
            model_name="correction",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("issued_at__isnull", False), ("period__isnull", False), ("status", "issued")),
                    models.Q(models.Q(("status", "issued"), _negated=True), ("issued_at", None), ("period", None)),
                    _connector="OR",
                ),
                name="issued_correction_stands_in_a_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "void"), _negated=True),
                fields=("period", "team", "shadow"),
                name="one_invoice_per_team_and_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("shadow", False), ("status__in", ["preview", "void"]), _connector="OR"),
                name="a_shadow_is_only_shown",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(fields=("issuer", "fiscal_year", "sequence"), name="one_invoice_per_number"),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("issued_at__isnull", False),
                        ("number__isnull", False),
                        ("status", "issued"),
                        models.Q(("sha256", ""), _negated=True),
                        models.Q(("document", ""), _negated=True),
                    ),
                    models.Q(
                        models.Q(("status", "issued"), _negated=True),
                        ("document", ""),
                        ("issued_at", None),
                        ("number", None),
                        ("sha256", ""),
                    ),
                    _connector="OR",
                ),
                name="issued_means_numbered_and_hashed",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoiceline",
            constraint=models.UniqueConstraint(fields=("invoice", "position"), name="one_line_per_position"),
        ),
        migrations.AddConstraint(
            model_name="journalexport",
            constraint=models.UniqueConstraint(fields=("period", "batch_hash"), name="one_export_per_batch"),
        ),
        migrations.AddConstraint(
            model_name="journalexport",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("acknowledged_at", None), ("acknowledged_by", ""), ("reference", "")),
                    models.Q(
                        ("acknowledged_at__isnull", False),
                        models.Q(("reference", ""), _negated=True),
                        models.Q(("acknowledged_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="an_acknowledgement_is_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="note",
            constraint=models.UniqueConstraint(
                fields=("kind", "issuer", "fiscal_year", "sequence"), name="one_note_per_number"
            ),
        ),
        migrations.AddConstraint(
            model_name="note",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("issued_at__isnull", False),
                        ("number__isnull", False),
                        models.Q(("sha256", ""), _negated=True),
                        models.Q(("document", ""), _negated=True),
                    ),
                    models.Q(("document", ""), ("issued_at", None), ("number", None), ("sha256", "")),
                    _connector="OR",
                ),
                name="issued_note_is_numbered_and_hashed",
            ),
        ),
        migrations.AddIndex(
            model_name="documentmail",
            index=models.Index(condition=models.Q(("status", "pending")), fields=["next_attempt_at"], name="mail_pending"),
        ),
        migrations.AddConstraint(
            model_name="documentmail",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("invoice", None), ("note__isnull", False)),
                    models.Q(("invoice__isnull", False), ("note", None)),
                    _connector="OR",
                ),
                name="a_mail_is_of_one_document",
            ),
        ),
        migrations.AddConstraint(
            model_name="documentmail",
            constraint=models.UniqueConstraint(fields=("invoice", "address"), name="one_mail_per_invoice_and_address"),
        ),
        migrations.AddConstraint(
            model_name="documentmail",
            constraint=models.UniqueConstraint(fields=("note", "address"), name="one_mail_per_note_and_address"),
        ),
        migrations.AddConstraint(
            model_name="documentevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("invoice", None), ("note__isnull", False)),
                    models.Q(("invoice__isnull", False), ("note", None)),
                    _connector="OR",
                ),
                name="an_event_is_of_one_document",
            ),
        ),
        migrations.AddConstraint(
            model_name="documentevent",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "settled")), fields=("invoice",), name="an_invoice_settles_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="documentevent",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "settled")), fields=("note",), name="a_note_settles_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="noteline",
            constraint=models.UniqueConstraint(fields=("note", "position"), name="one_note_line_per_position"),
        ),
        migrations.AddConstraint(
            model_name="noteline",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("invoice_line", None), ("note_line", None), ("style", "rebill")),
                    models.Q(
                        models.Q(("style", "rebill"), _negated=True), ("invoice_line__isnull", False), ("note_line", None)
                    ),
                    models.Q(
                        models.Q(("style", "rebill"), _negated=True), ("invoice_line", None), ("note_line__isnull", False)
                    ),
                    _connector="OR",
                ),
                name="a_credit_names_its_line",
            ),
        ),
    ]
