-- Give a claim back.
if is_of(redis.call('HGET', span, CLAIM), ARGV[2]) then
  redis.call('HDEL', span, CLAIM, BY, UNTIL)
end
return {'released'}
