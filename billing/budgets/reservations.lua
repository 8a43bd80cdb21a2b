-- Reservations of budgets. A call is one step: nobody sees anything in the middle of it.
--
-- Amounts are whole ten-thousandths, as text: Valkey adds them as 64-bit integers, where a Lua number would be rounded.
-- KEYS[1]: the prefix of all keys. ARGV[1]: the operation, ARGV[2]: its arguments as JSON.
--
-- <prefix>counter:<budget>:<period>  generation, spent, as_of: the newest from the ledger; used: spent + reserved + landed;
--                                    landed: of records in the ledger that no refresh up to `since` has counted
-- <prefix>reservation:<id>           amount, units, counters, name, until
-- <prefix>ends                       ids by the millisecond in which they end
-- <prefix>names                      name of a record -> id of the reservation that ends when it is counted
-- <prefix>looked                     these names by the millisecond in which the ledger was last asked for them

local FORGOTTEN_SECONDS, AT_ONCE = 300, 500
local prefix, call = KEYS[1], cjson.decode(ARGV[2])
local ENDS, NAMES, LOOKED = prefix .. 'ends', prefix .. 'names', prefix .. 'looked'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function counter(id) return prefix .. 'counter:' .. id end
local function reservation(id) return prefix .. 'reservation:' .. id end
local function whole(number) return string.format('%.0f', number) end
local function negative(units)
  if units == '0' then return units end
  return units:sub(1, 1) == '-' and units:sub(2) or '-' .. units
end

local function is_below(one, other)
  local minus = one:sub(1, 1) == '-'
  if minus ~= (other:sub(1, 1) == '-') then return minus end
  if #one ~= #other then return (#one < #other) ~= minus end
  return one ~= other and (one < other) ~= minus
end

local function counters_of(id)
  local kept = redis.call('HMGET', reservation(id), 'counters', 'units')
  return (kept[1] or ''):gmatch('[^,]+'), kept[2]
end

-- End a reservation: what it kept may be used again.
local function drop(id)
  local name = redis.call('HGET', reservation(id), 'name')
  if not name then return 0 end
  local counters, units = counters_of(id)
  for line in counters do
    if redis.call('EXISTS', counter(line)) == 1 then redis.call('HINCRBY', counter(line), 'used', negative(units)) end
  end
  redis.call('DEL', reservation(id))
  redis.call('ZREM', ENDS, id)
  redis.call('HDEL', NAMES, name)
  redis.call('ZREM', LOOKED, name)
  return 1
end

-- What the ledger says, if it is newer than what is known. A counter that nobody asks for is forgotten and begins anew, and
-- so is one that is ahead of the ledger: that was restored.
local function put(line)
  local key = counter(line.id)
  local known = redis.call('HMGET', key, 'generation', 'spent', 'landed', 'since')
  local ahead = known[1] and tonumber(known[1]) - line.generation
  if ahead == 0 then redis.call('EXPIRE', key, FORGOTTEN_SECONDS) end
  if ahead and ahead >= 0 then return end
  if known[1] then
    redis.call('HINCRBY', key, 'used', negative(known[2]))
    if known[3] and line.generation > tonumber(known[4]) then
      redis.call('HINCRBY', key, 'used', negative(known[3]))
      redis.call('HDEL', key, 'landed', 'since')
    end
  else
    for _, id in ipairs(redis.call('ZRANGE', ENDS, 0, -1)) do
      local counters, units = counters_of(id)
      for other in counters do if other == line.id then redis.call('HINCRBY', key, 'used', units) end end
    end
  end
  redis.call('HINCRBY', key, 'used', line.spent)
  redis.call('HSET', key, 'generation', whole(line.generation), 'spent', line.spent, 'as_of', line.as_of)
  redis.call('EXPIRE', key, FORGOTTEN_SECONDS)
end

-- Count what a reservation kept for a record that is in the ledger, until a refresh of the budget above `since` does.
local function land(line, units, since)
  local key = counter(line)
  redis.call('HINCRBY', key, 'used', units)
  redis.call('HINCRBY', key, 'landed', units)
  redis.call('HSET', key, 'since', whole(math.max(since, tonumber(redis.call('HGET', key, 'since') or 0))))
end

local function make(wanted, lines)
  local ids, ends = {}, whole(now + wanted.seconds * 1000)
  for place, line in ipairs(lines) do
    ids[place] = line.id
    redis.call('HINCRBY', counter(line.id), 'used', wanted.units)
  end
  redis.call('HSET', reservation(wanted.id), 'amount', wanted.amount, 'units', wanted.units,
             'counters', table.concat(ids, ','), 'name', wanted.name, 'until', ends)
  redis.call('ZADD', ENDS, ends, wanted.id)
  if wanted.name ~= '' then
    redis.call('HSET', NAMES, wanted.name, wanted.id)
    redis.call('ZADD', LOOKED, whole(now), wanted.name)
  end
end

local operations = {}

-- May it spend? Takes its reservation in the same step, unless its record has one already.
function operations.check()
  local states, is_refused, wanted = {}, false, call.wanted
  for place, line in ipairs(call.lines) do
    put(line)
    states[place] = redis.call('HMGET', counter(line.id), 'used', 'spent', 'as_of')
    is_refused = is_refused or not is_below(states[place][1], line.limit)
  end
  local id = wanted.name ~= '' and redis.call('HGET', NAMES, wanted.name)
  local is_new = not id and not is_refused and wanted.units ~= ''
  if is_new then
    make(wanted, call.lines)
    id = wanted.id
  end
  local kept = id and redis.call('HMGET', reservation(id), 'amount', 'until') or {}
  return cjson.encode({states = states, id = id or '', amount = kept[1] or '', ends = kept[2] or '', is_new = is_new})
end

function operations.release() return drop(call.id) end

-- Names of records to look for in the ledger: those that were looked for longest ago.
function operations.waiting()
  local names = redis.call('ZRANGE', LOOKED, 0, call.most - 1)
  for _, name in ipairs(names) do redis.call('ZADD', LOOKED, whole(now), name) end
  return names
end

-- New counters. A reservation ends whose record is in the ledger; a counter that was read before that was seen keeps it.
function operations.count()
  local is_behind = {}
  for _, line in ipairs(call.lines) do
    put(line)
    is_behind[line.id] = tonumber(redis.call('HGET', counter(line.id), 'generation')) <= call.since
  end
  for _, name in ipairs(call.landed) do
    local id = redis.call('HGET', NAMES, name)
    if id then
      local counters, units = counters_of(id)
      for line in counters do if is_behind[line] then land(line, units, call.since) end end
      drop(id)
    end
  end
  return 0
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDS, '-inf', whole(now), 'LIMIT', 0, AT_ONCE)) do drop(id) end
return operations[ARGV[1]]()
