"""Users, tenants, members with their roles, and the audit trail.

`0001_tables.sql` has what Django cannot say of the tables, `tenancy/sql/` their rules.
"""

from decimal import Decimal
from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
from django.conf import settings
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    replaces = [("tenancy", "0001_initial"), ("tenancy", "0002_weight")]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="User",
            fields=[
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("email", models.EmailField(help_text="Stored in lower case.", max_length=254, unique=True)),
                ("display_name", models.CharField(blank=True, max_length=150)),
                ("is_active", models.BooleanField(default=True)),
                ("is_staff", models.BooleanField(default=False, help_text="May sign in to the operators' admin.")),
                (
                    "session_epoch",
                    models.PositiveIntegerField(
                        default=0,
                        editable=False,
                        help_text="Incremented to end every session; a trigger increments it when the user is deactivated, and prevents a decrease.",
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                        name="email_is_in_lower_case",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(editable=False, max_length=16)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                (
                    "scopes",
                    models.JSONField(
                        default=list, help_text="`read`, `write`, `admin`; empty means everything that its user may do."
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tokens", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scopes__contained_by", ["read", "write", "admin"])),
                        name="token_scopes_are_known",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.Exact(django.db.models.functions.text.Length("digest"), 32),
                        name="token_digest_is_sha256",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("actor_id", models.UUIDField(null=True)),
                ("actor_name", models.CharField(max_length=254)),
                ("token_id", models.UUIDField(null=True)),
                ("action", models.CharField(max_length=60)),
                ("outcome", models.CharField(choices=[("done", "done"), ("refused", "refused")], max_length=10)),
                ("object_kind", models.CharField(max_length=40)),
                ("object_id", models.CharField(blank=True, max_length=64)),
                ("tenant_id", models.UUIDField(null=True)),
                ("detail", models.JSONField(default=dict)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                (
                    "source",
                    models.GenericIPAddressField(
                        help_text="The client's address; null for actions of the system.", null=True
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
                    models.Index(fields=["object_kind", "object_id"], name="audit_by_object"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["done", "refused"])), name="audit_outcome_is_known"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("hash", models.BinaryField(max_length=32)),
                (
                    "entry",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="link",
                        to="tenancy.auditentry",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AuditWatch",
            fields=[
                ("id", models.SmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(default=0)),
                (
                    "hash",
                    models.BinaryField(
                        default=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                        max_length=32,
                    ),
                ),
                ("filed_position", models.BigIntegerField(default=0)),
                ("swept_position", models.BigIntegerField(default=0)),
                ("checked_at", models.DateTimeField(null=True)),
                ("fault", models.TextField(blank=True, default="")),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="one_watch_over_the_audit_trail"),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.Exact(django.db.models.functions.text.Length("hash"), 32),
                        name="watched_hash_is_sha256",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("filed_position__gte", 0), ("position__gte", 0), ("swept_position__gte", 0)
                        ),
                        name="watch_positions_count_up",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RefusalCount",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute_at", models.DateTimeField()),
                ("action", models.CharField(max_length=60)),
                ("source", models.GenericIPAddressField(null=True)),
                ("count", models.PositiveIntegerField()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute_at", "action", "source"),
                        name="one_count_per_minute_and_source",
                        nulls_distinct=False,
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SignInTry",
            fields=[
                ("key", models.CharField(max_length=160, primary_key=True, serialize=False)),
                ("tries", models.PositiveIntegerField()),
                ("until", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["until"], name="sign_in_tries_by_end")],
            },
        ),
        migrations.CreateModel(
            name="Tenant",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("organisation", "Organisation"),
                            ("department", "Department"),
                            ("team", "Team"),
                            ("project", "Project"),
                        ],
                        max_length=20,
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                ("path", models.CharField(editable=False, max_length=1100, unique=True)),
                ("depth", models.PositiveSmallIntegerField(editable=False)),
                ("labels", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="tenancy.tenant",
                    ),
                ),
                (
                    "weight",
                    models.DecimalField(
                        db_default=1,
                        decimal_places=2,
                        default=1,
                        help_text="Its part of its parent's share.",
                        max_digits=6,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="tenant_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["organisation", "department", "team", "project"])),
                        name="tenant_kind_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("depth__lt", 16)), name="tenant_tree_is_at_most_16_deep"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("depth", 0), ("kind", "organisation"), ("parent__isnull", True)),
                            models.Q(
                                ("depth__gt", 0),
                                ("parent__isnull", False),
                                models.Q(("kind", "organisation"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="only_organisations_are_roots",
                    ),
                    models.UniqueConstraint(fields=("parent", "name"), name="tenant_name_is_unique_below_its_parent"),
                    models.CheckConstraint(
                        condition=models.Q(("weight__gte", Decimal("0.01")), ("weight__lte", Decimal("1000"))),
                        name="tenant_weight_is_in_range",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["path"], name="tenant_by_path_prefix", opclasses=["varchar_pattern_ops"])
                ],
            },
        ),
        migrations.CreateModel(
            name="RoleBinding",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "viewer"),
                            ("submitter", "submitter"),
                            ("manager", "manager"),
                            ("finance", "finance"),
                            ("admin", "admin"),
                        ],
                        max_length=20,
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="role_bindings",
                        to="auth.group",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="role_bindings",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        editable=False,
                        help_text="The tenant's organisation (trigger).",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenancy.tenant",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="role_bindings", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group__isnull", True), ("user__isnull", False)),
                            models.Q(("group__isnull", False), ("user__isnull", True)),
                            _connector="OR",
                        ),
                        name="role_binding_names_a_user_or_a_group",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["viewer", "submitter", "manager", "finance", "admin"])),
                        name="role_is_known",
                    ),
                    models.UniqueConstraint(fields=("tenant", "user", "role"), name="one_binding_per_user_and_role"),
                    models.UniqueConstraint(fields=("tenant", "group", "role"), name="one_binding_per_group_and_role"),
                ],
            },
        ),
        migrations.CreateModel(
            name="OneTimeLink",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("first_sign_in", "First Sign In"),
                            ("reset_password", "Reset Password"),
                            ("invitation", "Invitation"),
                        ],
                        max_length=20,
                    ),
                ),
                ("prefix", models.CharField(editable=False, max_length=16)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("email", models.EmailField(blank=True, help_text="The invited email, in lower case.", max_length=254)),
                (
                    "role",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("viewer", "viewer"),
                            ("submitter", "submitter"),
                            ("manager", "manager"),
                            ("finance", "finance"),
                            ("admin", "admin"),
                        ],
                        max_length=20,
                    ),
                ),
                ("role_expires_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "made_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="one_time_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("purpose", "invitation"),
                                ("role__in", ["viewer", "submitter", "manager", "finance", "admin"]),
                                ("tenant__isnull", False),
                                ("user__isnull", True),
                                models.Q(("email", ""), _negated=True),
                            ),
                            models.Q(
                                ("purpose__in", ["first_sign_in", "reset_password"]),
                                ("tenant__isnull", True),
                                ("user__isnull", False),
                                ("email", ""),
                                ("role", ""),
                                ("role_expires_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="one_time_link_has_what_its_purpose_needs",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.Exact(django.db.models.functions.text.Length("digest"), 32),
                        name="one_time_link_digest_is_sha256",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                        name="invited_email_is_in_lower_case",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("used_at__isnull", True), ("ended_at__isnull", True), _connector="OR"),
                        name="one_time_link_ends_one_way",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True), ("used_at__isnull", True)),
                        fields=("user",),
                        name="one_live_link_per_user",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True), ("used_at__isnull", True)),
                        fields=("tenant", "email", "role"),
                        name="one_live_invitation_per_email_and_role",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        help_text="A root of the tree (trigger).",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "organisation"), name="one_membership_per_organisation")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("route", models.CharField(max_length=60)),
                ("key", models.CharField(max_length=200)),
                ("body_digest", models.BinaryField(max_length=32)),
                ("status", models.PositiveSmallIntegerField()),
                (
                    "answer",
                    models.TextField(
                        help_text="The body as JSON text, so that a repeated request gets the same bytes."
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "tenant", "route", "key"),
                        name="one_answer_per_idempotency_key",
                        nulls_distinct=False,
                    )
                ],
                "indexes": [models.Index(fields=["created_at"], name="answers_by_age")],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("tenancy/audit.sql"),
        rules("tenancy/tree.sql"),
        rules("tenancy/members.sql"),
        rules("tenancy/users.sql"),
    ]
