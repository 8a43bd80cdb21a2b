"""Words of the documents in Chinese and English.

A label is a list of one or two strings: ``["账单", "Invoice"]`` for ``zh-en``, one of them for ``zh`` or ``en``.
"""

from __future__ import annotations

from typing import Literal, get_args

Language = Literal["zh-en", "zh", "en"]
Label = list[str]

WORDS: dict[str, tuple[str, str]] = {
    "invoice": ("账单", "Invoice"),
    "credit_note": ("贷记单", "Credit note"),
    "rebill_note": ("重开账单", "Rebill"),
    "corrects_invoice": ("更正对象", "Corrects"),
    "note_reason": ("更正原因", "Reason"),
    "note_style": ("更正方式", "What is done"),
    "credits_line": ("冲减行", "Credits line"),
    "internal": ("内部结算", "Internal transfer"),
    "issuer": ("开具方", "Issued by"),
    "recipient": ("结算方", "Billed to"),
    "team": ("团队", "Team"),
    "cost_center": ("成本中心", "Cost centre"),
    "legal_entity": ("法人主体", "Legal entity"),
    "attention": ("收件人", "Attention"),
    "address": ("地址", "Address"),
    "tax_id": ("税号", "Tax ID"),
    "contact": ("联系人", "Contact"),
    "number": ("编号", "Number"),
    "issue_date": ("开具日期", "Issue date"),
    "dispute_until": ("异议截止", "Dispute until"),
    "month": ("账期", "Billing period"),
    "bounds": ("起止", "From – to"),
    "bounds_utc": ("UTC 起止", "UTC bounds"),
    "currency": ("币种", "Currency"),
    "at_issue": ("开具时生成", "Assigned at issue"),
    "summary": ("费用汇总", "Summary"),
    "total": ("合计", "Total"),
    "subtotal": ("小计", "Subtotal"),
    "of_which_corrections": ("其中更正", "Of which corrections"),
    "corrections": ("以前账期更正", "Corrections of earlier periods"),
    "no_lines": ("本期无费用", "No charges in this period"),
    "position": ("#", "#"),
    "quantity": ("数量", "Quantity"),
    "unit": ("单位", "Unit"),
    "unit_price": ("单价", "Unit price"),
    "price_version": ("价格版本", "Price version"),
    "amount": ("金额", "Amount"),
    "sku": ("型号", "SKU"),
    "place": ("集群 / 命名空间", "Cluster / namespace"),
    "model": ("模型与类别", "Model and class"),
    "consumer": ("调用方", "Consumer"),
    "all_consumers": ("全部调用方，见附件", "All consumers, see the annex"),
    "adjustment": ("调整", "Adjustment"),
    "basis": ("范围与依据", "Scope and policy"),
    "item": ("项目", "Item"),
    "scope": ("范围", "Scope"),
    "commitment": ("承诺", "Commitment"),
    "policy": ("政策", "Policy"),
    "jobs": ("作业", "Jobs"),
    "correction_of": ("更正账期", "Corrects"),
    "energy": ("能耗", "Energy"),
    "terms": ("结算条款", "Terms"),
    "dispute": ("如有异议", "If something is wrong"),
    "integrity": ("SHA-256 校验值", "SHA-256 integrity"),
    "this_document": ("本单据", "This document"),
    "previous_document": ("上一单据", "Previous document"),
    "first_in_series": ("本系列首张单据", "First document of the series"),
    "page": ("页", "Page"),
    "kind": ("类别", "Kind"),
    "status": ("状态", "Status"),
    "cluster": ("集群", "Cluster"),
    "namespace": ("命名空间", "Namespace"),
    "sku_or_model": ("型号 / 模型", "SKU / model"),
    "token_class": ("Token 类别", "Token class"),
    "context": ("提示长度（Token）", "Prompt tokens"),
    "reason": ("原因", "Reason"),
    "charge_class": ("费用性质", "Charge class"),
    "charge_period": ("用量账期", "Charge period"),
    "energy_kwh": ("能耗 kWh", "Energy kWh"),
    "lines_sheet": ("明细", "Lines"),
}

TITLES = {"invoice": "invoice", "credit": "credit_note", "rebill": "rebill_note"}
"""Title word of a document, by its kind."""

SENTENCES: dict[str, tuple[str, str]] = {
    "energy": ("仅供参考，不计费", "For information only, not charged."),
    "terms": (
        "本单据为公司内部结算凭证，用于部门间成本分摊；不是增值税发票，无需付款，金额由财务按成本中心入账。",
        "Internal transfer of cost between departments. This is not a tax invoice and no payment is due;"
        " Finance books the amount to the cost centre shown.",
    ),
    "dispute": (
        "请在算盘中对相应行提出异议，或联系开具方，并注明单据编号与行号。已开具的单据不会修改；"
        "核实后的差额以更正行计入后续单据。",
        "Dispute the line in Suanpan, or contact the issuer quoting the document number and the line number."
        " An issued document is never changed: an agreed difference appears as a correction on a later one.",
    ),
    "integrity": (
        "校验值由本单据的规范 JSON 计算，并包含上一单据的校验值。",
        "The hash is taken over the canonical JSON of this document, which contains the previous document's hash.",
    ),
    "draft": (
        "草稿仅供预览，尚未开具，不可入账。",
        "A draft for preview: not issued, not to be booked.",
    ),
    "shadow": (
        "影子账单，仅供参考：按实际规则计算，但不结算、不入账。",
        "A shadow invoice: calculated by the rules that will apply, shown for information, not charged and not booked.",
    ),
    "void": ("本单据已作废，不可入账。", "This document is void and not to be booked."),
}

KINDS: dict[str, tuple[str, str]] = {
    "gpu": ("GPU 用量", "GPU hours"),
    "tokens": ("Token 用量", "Tokens"),
    "efficiency": ("效率调整", "Efficiency adjustments"),
    "interruption": ("中断减免", "Interruption credits"),
    "idle": ("闲置容量", "Idle capacity"),
    "shared": ("公共成本", "Shared cost"),
    "commitment": ("承诺用量", "Commitments"),
    "credit": ("减免", "Credits"),
    "adjustment": ("调整", "Adjustments"),
    "correction": ("更正", "Corrections"),
}

TOKEN_CLASSES: dict[str, tuple[str, str]] = {
    "input": ("输入", "Input"),
    "output": ("输出", "Output"),
    "cache_read": ("缓存读取", "Cache read"),
    "cache_creation": ("缓存写入", "Cache write"),
    "reasoning": ("推理", "Reasoning"),
}

REASONS: dict[str, tuple[str, str]] = {
    "used": ("承诺内用量", "Used"),
    "unused": ("承诺未用", "Unused"),
    "proportional": ("按用量分摊", "In proportion to use"),
    "even": ("平均分摊", "Evenly"),
    "fixed": ("按固定比例分摊", "Fixed share"),
    "reward": ("奖励", "Reward"),
    "penalty": ("扣罚", "Penalty"),
    "preempted": ("被抢占", "Preempted"),
    "reclaimed": ("被回收", "Reclaimed"),
    "evicted": ("被驱逐", "Evicted"),
    "node lost": ("节点故障", "Node lost"),
}

UNITS: dict[str, tuple[str, str]] = {
    "GPU-Hours": ("GPU 卡时", "GPU-Hours"),
    "Slice-Hours": ("切片卡时", "Slice-Hours"),
    "1M Tokens": ("百万 Token", "1M Tokens"),
    "Amount": ("金额", "Amount"),
}

STYLES: dict[str, tuple[str, str]] = {
    "reversal": ("冲回", "Reversed"),
    "withdrawal": ("收回减免", "Credit taken back"),
    "allowance": ("减免", "Credit"),
    "rebill": ("重新计费", "Billed again"),
}

NOTE_REASONS: dict[str, tuple[str, str]] = {
    "price": ("价格有误", "Wrong price"),
    "quantity": ("数量有误", "Wrong quantity"),
    "ownership": ("归属有误", "Wrong team"),
    "mfu": ("效率数据有误", "Wrong efficiency data"),
    "sla": ("平台故障", "Fault of the platform"),
    "duplicate": ("重复计费", "Billed twice"),
    "goodwill": ("善意减免", "Goodwill"),
    "write_off": ("核销", "Written off"),
}

MARKS: dict[str, tuple[str, str]] = {"draft": ("草稿", "DRAFT"), "void": ("作废", "VOID"), "shadow": ("影子账单", "SHADOW")}


def check_language(language: str) -> Language:
    """Return ``language`` as a Language; raise ValueError naming the choices."""
    for known in get_args(Language):
        if language == known:
            return known
    raise ValueError(f"language {language!r}: expected one of {', '.join(get_args(Language))}")


def choose(pair: tuple[str, str], language: Language) -> Label:
    """Return the strings of ``("账单", "Invoice")`` to show: both, the Chinese or the English one; equal ones once."""
    if language == "zh":
        return [pair[0]]
    if language == "en" or pair[0] == pair[1]:
        return [pair[1]]
    return list(pair)


def named(table: dict[str, tuple[str, str]], key: str, language: Language) -> Label:
    """Return the label of a code such as ``cache_read``; a code without a translation is shown unchanged."""
    return choose(table.get(key, (key, key)), language)


def inline(label: Label) -> str:
    """Return both languages in one string: ``账单 Invoice``."""
    return " ".join(label)
